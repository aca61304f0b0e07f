// The folder a run writes: docs/run-folder.md describes what is in it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "trireme/base/folder_claim.h"

namespace trireme {

// Whoever trains in a folder claims it before it reads or writes anything there, and keeps the claim for as
// long as this object lives; a killed run can be resumed at once. Whoever has no claim only reads.
class RunFolder {
 public:
  // Makes and claims a new folder for a run, with its settings in config.toml. An empty path chooses a fresh
  // name below runs/. Throws Error when the path is a file, holds another run or other files, cannot be
  // written, or is claimed by another process.
  static RunFolder Create(const std::filesystem::path& path, const std::string& name,
                          const std::string& config);
  // Claims the folder of an earlier run, to continue it. Throws Error when it holds none, or when another
  // process trains in it.
  static RunFolder Resume(const std::filesystem::path& path);
  // The folder of a run to read from; somebody may be training in it. Throws Error when it holds no run.
  static RunFolder Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path result() const { return path_ / "result.json"; }
  // The result of an earlier end of the run, if there is one, holds no more. Throws Error.
  void RemoveResult() const;
  // Takes a new run back that has failed before anything happened: nothing but the settings is in a folder
  // that Create() has made and nobody else can have claimed. Throws nothing.
  void RemoveIfUnused() const noexcept;

  // A name that no other run has, wherever its folder is moved; made when it is first asked for. Throws Error.
  std::string Id() const;

  std::string ReadConfig() const;
  // Replaces config.toml, for a resumed run whose settings were changed.
  void WriteConfig(const std::string& config) const;

 private:
  RunFolder(std::filesystem::path path, FolderClaim claim)
      : path_(std::move(path)), claim_(std::move(claim)) {}
  std::filesystem::path path_;
  FolderClaim claim_;
  bool created_ = false;
};

// Random: nobody has had it before.
std::string NewRunId();

}  // namespace trireme
