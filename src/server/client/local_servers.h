// Parameter servers of a run on one machine: child processes of this one, on Unix sockets, started again when
// they die and ended with the run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

class LocalServers {
 public:
  // Starts `count` processes `program server`, where `program` is a file or a name to be looked for in PATH, and
  // waits until they listen. Each keeps its parts below `folder`. `say`: told when one had to be started again; called from a thread. Throws Error.
  LocalServers(const std::string& program, int count, const std::filesystem::path& folder, bool audit,
               std::function<void(const std::string&)> say);
  // Ends them.
  ~LocalServers();

  const std::vector<std::string>& addresses() const;
  // Processor time of all of them since they were started, last.
  double ProcessorSeconds() const;

 private:
  class Keeper;
  std::unique_ptr<Keeper> keeper_;
};

}  // namespace trireme
