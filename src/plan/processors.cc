#include "trireme/plan/processors.h"

#include "trireme/base/error.h"

namespace trireme {

void Processors::Advance(double now_s) {
  TRIREME_CHECK(now_s >= at_s_);
  if (!idle()) served_s_ += (now_s - at_s_) * speed();
  at_s_ = now_s;
  ++changes_;
}

void Processors::Start(double now_s, double seconds, Job job) {
  TRIREME_CHECK(seconds >= 0);
  Advance(now_s);
  jobs_.push({served_s_ + seconds, changes_, job});
}

double Processors::NextEnd() const {
  TRIREME_CHECK(!idle());
  return at_s_ + std::max(0.0, jobs_.top().end - served_s_) / speed();
}

Processors::Job Processors::Finish(double now_s) {
  TRIREME_CHECK(!idle());
  Advance(now_s);
  const Job job = jobs_.top().job;
  jobs_.pop();
  return job;
}

}  // namespace trireme
