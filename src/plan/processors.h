// The processors of one host, shared by whatever wants to run there: of n jobs on c processors each proceeds
// at min(1, c / n) of a processor's speed, as under a scheduler whose turns are short. No job uses more than
// one processor.
//
// Time comes from outside: the owner starts jobs, asks when the next one will be done, and ends it then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

namespace trireme {

class Processors {
 public:
  explicit Processors(double count) : count_(count) {}

  struct Job {
    int node = 0;
    int tag = 0;  // whatever the owner likes
  };

  // A job begins that takes `seconds` on a processor of its own.
  void Start(double now_s, double seconds, Job job);
  bool idle() const { return jobs_.empty(); }
  // When the next job is done, if none begins before. Requires that there is one.
  double NextEnd() const;
  // It is done. Requires that the moment NextEnd() has come.
  Job Finish(double now_s);
  // Grows with every start and end: a moment that was asked for before is out of date.
  int changes() const { return changes_; }

 private:
  struct Entry {
    double end;  // of served_s_
    int order;
    Job job;

    bool operator<(const Entry& other) const {  // the queue's top is its largest
      return end != other.end ? end > other.end : order > other.order;
    }
  };

  double speed() const { return std::min(1.0, count_ / static_cast<double>(jobs_.size())); }
  void Advance(double now_s);

  double count_;
  std::priority_queue<Entry> jobs_;
  double at_s_ = 0;      // when jobs last began or ended
  double served_s_ = 0;  // what a job that had run all the time would have had until then
  int changes_ = 0;
};

}  // namespace trireme
