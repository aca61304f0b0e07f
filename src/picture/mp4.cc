#include "trireme/base/plugin.h"
#include "trireme/picture/video.h"

namespace trireme {

std::unique_ptr<VideoEncoder> MakeMp4(double per_second) {
  using Make = VideoEncoder* (*)(double);
  const auto make =
      reinterpret_cast<Make>(PluginSymbol("libtrireme_ffmpeg.so", "TriremeMakeMp4", "MP4 (ffmpeg)"));
  return std::unique_ptr<VideoEncoder>(make(per_second));
}

}  // namespace trireme
