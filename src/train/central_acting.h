// Central inference of a run: what its algorithm chooses with, behind the service that actors ask.
//
// Thread safety: as CentralInference.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "trireme/algo/algorithm.h"
#include "trireme/base/error.h"
#include "trireme/experience/central_inference.h"
#include "trireme/nn/make_executor.h"
#include "trireme/train/run_config.h"
#include "trireme/train/stores.h"

namespace trireme {

class CentralActing {
 public:
  // `context` outlives it.
  explicit CentralActing(const RunContext& context)
      : most_envs_(std::max(context.settings.algorithm->TrajectorySize(context.settings.run.shards).envs,
                            context.settings.run.inference_batch)),
        executor_(MakeExecutor(context.network, context.settings.run.ComputingOf(0))),
        acting_(context.settings.algorithm->MakeActing(context.settings.env().spec, *executor_, most_envs_)),
        service_({[this](std::span<const float> params) { acting_->SetParams(params); },
                  [this](std::span<const ActionRequest> requests) { acting_->ChooseTogether(requests); }},
                 {most_envs_, std::chrono::microseconds(
                                  static_cast<std::int64_t>(context.settings.run.inference_wait_us))}) {
    TRIREME_CHECK(acting_ != nullptr && !acting_->notes());  // RunSettings::Resolve
  }

  CentralInference& service() { return service_; }
  const CentralInference& service() const { return service_; }

 private:
  const int most_envs_;
  const std::unique_ptr<Executor> executor_;
  const std::unique_ptr<Acting> acting_;
  CentralInference service_;
};

}  // namespace trireme
