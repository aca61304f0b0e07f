// Films made of pictures, in memory.
#pragma once

#include <memory>
#include <string>

#include "trireme/picture/picture.h"

namespace trireme {

// Belongs to one thread.
class VideoEncoder {
 public:
  virtual ~VideoEncoder() = default;
  // The next picture, of the size of the first. Throws Error.
  virtual void Add(const Picture& picture) = 0;
  // The bytes of a file with all pictures, at least one. Nothing is called afterwards. Throws Error.
  virtual std::string Finish() = 0;
};

// A film that shows so many pictures in a second, as an animated GIF that repeats itself for ever.
std::unique_ptr<VideoEncoder> MakeGif(double per_second);

// The same as MP4, by ffmpeg: in a library of its own (base/plugin.h), which is loaded here. Throws Error that says
// how to get it when it is not there.
std::unique_ptr<VideoEncoder> MakeMp4(double per_second);

}  // namespace trireme
