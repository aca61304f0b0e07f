// MP4 with H.264, or MPEG-4 video where ffmpeg was built without x264. A picture of an odd width or height gets its
// last column or row twice: colours have half the resolution in both ways.
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/picture/video.h"

namespace trireme {
namespace {

constexpr std::size_t kSlack = 64;  // bytes that the scaler may read beyond a picture

void Check(int result, const char* what) {
  if (result >= 0) return;
  std::array<char, AV_ERROR_MAX_STRING_SIZE> why{};
  av_strerror(result, why.data(), why.size());
  Fail("ffmpeg cannot {}: {}", what, why.data());
}

template <class T>
T* Made(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

template <class T, auto free>
struct Freed {
  void operator()(T* pointer) const { free(&pointer); }
};
template <class T, auto free>
using Owned = std::unique_ptr<T, Freed<T, free>>;

class Mp4 final : public VideoEncoder {
 public:
  explicit Mp4(double per_second) : rate_(av_d2q(per_second, 1'000'000)) { av_log_set_level(AV_LOG_QUIET); }
  ~Mp4() override {
    if (!format_) return;
    if (std::uint8_t* bytes = nullptr;
        format_->pb != nullptr && avio_close_dyn_buf(format_->pb, &bytes) >= 0) {
      av_free(bytes);
    }
    sws_freeContext(scaler_);
  }

  void Add(const Picture& picture) override {
    CheckPicture(picture, "the film");
    if (!format_) Open(picture);
    if (picture.width != width_ || picture.height != height_) {
      Fail("a film of {} x {} pixels cannot take a picture of {} x {}", width_, height_, picture.width,
           picture.height);
    }
    Pad(picture);
    Check(av_frame_make_writable(frame_.get()), "use its picture again");
    const std::array<const std::uint8_t*, 4> rows = {padded_.data()};  // of one plane; four are read
    const std::array<int, 4> strides = {codec_->width * 3};
    sws_scale(scaler_, rows.data(), strides.data(), 0, codec_->height, frame_->data, frame_->linesize);
    frame_->pts = added_++;
    Encode(frame_.get());
  }

  std::string Finish() override {
    TRIREME_CHECK(added_ > 0);
    Encode(nullptr);
    Check(av_write_trailer(format_.get()), "end the film");
    std::uint8_t* bytes = nullptr;
    const int size = avio_close_dyn_buf(std::exchange(format_->pb, nullptr), &bytes);
    const std::unique_ptr<std::uint8_t, decltype(&av_free)> owner(bytes, &av_free);
    if (size <= 0) throw std::bad_alloc();
    return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)};
  }

 private:
  struct FreeFormat {
    void operator()(AVFormatContext* format) const { avformat_free_context(format); }
  };

  void Open(const Picture& first) {
    width_ = first.width;
    height_ = first.height;
    const AVCodec* codec = avcodec_find_encoder_by_name("libx264");
    const bool has_x264 = codec != nullptr;
    if (!has_x264) codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
    if (codec == nullptr) Fail("the installed ffmpeg encodes neither H.264 nor MPEG-4: no MP4; a .gif works");
    AVFormatContext* format = nullptr;
    Check(avformat_alloc_output_context2(&format, nullptr, "mp4", nullptr), "make an MP4 file");
    format_.reset(format);

    codec_.reset(Made(avcodec_alloc_context3(codec)));
    codec_->width = (width_ + 1) / 2 * 2;
    codec_->height = (height_ + 1) / 2 * 2;
    codec_->pix_fmt = AV_PIX_FMT_YUV420P;
    codec_->framerate = rate_;
    codec_->time_base = av_inv_q(rate_);
    codec_->colorspace = AVCOL_SPC_SMPTE170M;  // what the scaler makes of red, green and blue
    codec_->color_range = AVCOL_RANGE_MPEG;
    codec_->thread_count = 1;
    if (format_->oformat->flags & AVFMT_GLOBALHEADER) codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    if (has_x264) {
      Check(av_opt_set(codec_->priv_data, "crf", "18", 0), "choose a quality");
    } else {
      codec_->flags |= AV_CODEC_FLAG_QSCALE;
      codec_->global_quality = 3 * FF_QP2LAMBDA;
    }
    Check(avcodec_open2(codec_.get(), codec, nullptr), "begin to encode");

    stream_ = Made(avformat_new_stream(format_.get(), nullptr));
    stream_->time_base = codec_->time_base;
    stream_->avg_frame_rate = rate_;
    Check(avcodec_parameters_from_context(stream_->codecpar, codec_.get()), "describe the film");
    Check(avio_open_dyn_buf(&format_->pb), "get memory");
    Check(avformat_write_header(format_.get(), nullptr), "begin the film");

    packet_.reset(Made(av_packet_alloc()));
    frame_.reset(Made(av_frame_alloc()));
    frame_->format = codec_->pix_fmt;
    frame_->width = codec_->width;
    frame_->height = codec_->height;
    if (!has_x264) frame_->quality = codec_->global_quality;
    Check(av_frame_get_buffer(frame_.get(), 0), "get memory");
    scaler_ =
        Made(sws_getContext(codec_->width, codec_->height, AV_PIX_FMT_RGB24, codec_->width, codec_->height,
                            AV_PIX_FMT_YUV420P, SWS_BICUBIC, nullptr, nullptr, nullptr));
    padded_.resize(static_cast<std::size_t>(codec_->width) * codec_->height * 3 + kSlack);
  }

  void Pad(const Picture& picture) {
    const std::size_t stride = static_cast<std::size_t>(width_) * 3,
                      padded = static_cast<std::size_t>(codec_->width) * 3;
    for (int y = 0; y < codec_->height; ++y) {
      const std::uint8_t* from = &picture.rgb[std::min(y, height_ - 1) * stride];
      std::uint8_t* to = std::copy_n(from, stride, &padded_[y * padded]);
      if (padded > stride) std::copy_n(from + stride - 3, 3, to);
    }
  }

  // Null: there are no more.
  void Encode(const AVFrame* frame) {
    Check(avcodec_send_frame(codec_.get(), frame), "encode a picture");
    for (;;) {
      const int result = avcodec_receive_packet(codec_.get(), packet_.get());
      if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) return;
      Check(result, "encode a picture");
      packet_->duration = 1;
      av_packet_rescale_ts(packet_.get(), codec_->time_base, stream_->time_base);
      packet_->stream_index = stream_->index;
      Check(av_interleaved_write_frame(format_.get(), packet_.get()), "write a picture");
    }
  }

  AVRational rate_;
  int width_ = 0, height_ = 0;  // of the pictures
  std::int64_t added_ = 0;
  std::unique_ptr<AVFormatContext, FreeFormat> format_;  // its pb is a growing buffer, from Open to Finish
  Owned<AVCodecContext, avcodec_free_context> codec_;
  AVStream* stream_ = nullptr;  // of format_
  Owned<AVPacket, av_packet_free> packet_;
  Owned<AVFrame, av_frame_free> frame_;
  SwsContext* scaler_ = nullptr;
  std::vector<std::uint8_t> padded_;  // [codec height, codec width, 3], and kSlack
};

}  // namespace
}  // namespace trireme

extern "C" trireme::VideoEncoder* TriremeMakeMp4(double per_second) { return new trireme::Mp4(per_second); }
