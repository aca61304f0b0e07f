// Where pictures are kept: out.gif, out.mp4, or frames/ for PNG files 000000.png, 000001.png and so on.
//
// Nothing that is there is replaced. What is new appears whole when it is finished, and not at all when that fails
// or it is given up.
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/picture/picture.h"

namespace trireme {

// Belongs to one thread.
class PictureOutput {
 public:
  virtual ~PictureOutput() = default;
  // The next picture, of the size of the first. Throws Error.
  virtual void Add(const Picture& picture) = 0;
  // After at least one picture; nothing is called afterwards. Throws Error.
  virtual void Finish() = 0;
};

// Throws Error when pictures cannot be kept at `path`: it ends in neither .gif nor .mp4 nor a slash, something is
// there (a folder may be empty), its folder is missing or cannot be written, or the library for MP4 is missing.
void CheckPictureOutput(const std::filesystem::path& path);
// Checks as well. So many pictures are shown in a second.
std::unique_ptr<PictureOutput> MakePictureOutput(const std::filesystem::path& path, double per_second);

}  // namespace trireme
