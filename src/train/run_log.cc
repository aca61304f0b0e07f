#include "trireme/train/run_log.h"

#include <cstdint>

namespace trireme {

RunLog::RunLog(const RunFolder& folder, const std::string& config, const RunProgress& progress, bool json)
    : jsonl_(folder.metrics(), UINT64_MAX),
      tensorboard_(folder.path(), progress.steps),
      printer_(2, ChooseProgressStyle(2, json)) {
  if (folder.ReadConfig() != config) folder.WriteConfig(config);
  folder.RemoveResult();
  jsonl_.CutTo(progress.metrics_offset);
}

}  // namespace trireme
