#include "trireme/picture/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/picture/png.h"
#include "trireme/picture/video.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

enum class Kind { kGif, kMp4, kFrames };

Kind KindOf(const fs::path& path) {
  if (!path.empty() && !path.has_filename()) return Kind::kFrames;
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
  if (extension == ".gif") return Kind::kGif;
  if (extension == ".mp4") return Kind::kMp4;
  Fail("'{}' is no name for pictures: a film ends in .gif or .mp4, a folder for PNG files in a slash",
       path.string());
}

// Without the slash at its end.
fs::path FolderName(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

void CheckFree(const fs::path& path, Kind kind) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (kind == Kind::kFrames && fs::is_directory(status)) {
    if (!ListFolder(path).empty())
      Fail("{} is not empty: choose another folder for the pictures", path.string());
  } else if (fs::exists(status)) {
    Fail("{} is there already: choose another name or remove it", path.string());
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!fs::is_directory(folder, error))
    Fail("cannot write {}: there is no folder {}", path.string(), folder.string());
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    Fail("cannot write {}: {}", path.string(), std::strerror(errno));
  }
}

class Film final : public PictureOutput {
 public:
  Film(fs::path path, std::unique_ptr<VideoEncoder> encoder)
      : path_(std::move(path)), encoder_(std::move(encoder)) {}
  void Add(const Picture& picture) override { encoder_->Add(picture); }
  void Finish() override {
    const std::string bytes = encoder_->Finish();
    CheckFree(path_, Kind::kGif);
    WriteFileAtomically(path_, bytes);
  }

 private:
  fs::path path_;
  std::unique_ptr<VideoEncoder> encoder_;
};

// A new folder beside `path`, with a name that nobody has.
fs::path FolderBeside(const fs::path& path) {
  std::string name = path.string() + ".XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) Fail("cannot make a folder {}: {}", name, std::strerror(errno));
  return name;
}

class Frames final : public PictureOutput {
 public:
  explicit Frames(fs::path path) : path_(std::move(path)), making_(FolderBeside(path_)) {}
  void Add(const Picture& picture) override {
    CheckPicture(picture, "the environment");
    WriteNewFile(making_.path() / fmt::format("{:06}.png", count_++), EncodePng(picture));
  }
  void Finish() override {
    CheckFree(path_, Kind::kFrames);
    ::chmod(making_.path().c_str(), 0755);
    std::error_code error;
    fs::rename(making_.path(), path_, error);  // also over an empty folder
    if (error) Fail("cannot make the folder {}: {}", path_.string(), error.message());
  }

 private:
  fs::path path_;
  ScratchFolder making_;
  int count_ = 0;
};

}  // namespace

void CheckPictureOutput(const fs::path& path) {
  const Kind kind = KindOf(path);
  CheckFree(FolderName(path), kind);
  if (kind == Kind::kMp4) MakeMp4(1);
}

std::unique_ptr<PictureOutput> MakePictureOutput(const fs::path& path, double per_second) {
  CheckPictureOutput(path);
  switch (KindOf(path)) {
    case Kind::kGif:
      return std::make_unique<Film>(path, MakeGif(per_second));
    case Kind::kMp4:
      return std::make_unique<Film>(path, MakeMp4(per_second));
    case Kind::kFrames:
      return std::make_unique<Frames>(FolderName(path));
  }
  TRIREME_CHECK(false);
}

}  // namespace trireme
