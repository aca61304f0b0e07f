// Reads films and pictures back with ffmpeg, for tests.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/picture/picture.h"

namespace trireme {

struct Decoded {
  std::string codec;
  double duration_s = 0;
  std::vector<double> times_s = {};
  std::vector<Picture> pictures = {};
};

// Throws Error unless all of it can be decoded.
inline Decoded DecodeFile(const std::filesystem::path& path) {
  const auto check = [](int result, const char* what) {
    if (result < 0) Fail("{} failed: {}", what, result);
    return result;
  };
  av_log_set_level(AV_LOG_QUIET);
  AVFormatContext* format = nullptr;
  check(avformat_open_input(&format, path.c_str(), nullptr, nullptr), "open");
  check(avformat_find_stream_info(format, nullptr), "find_stream_info");
  const int index =
      check(av_find_best_stream(format, AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0), "find_best_stream");
  AVStream* stream = format->streams[index];
  const AVCodec* codec = avcodec_find_decoder(stream->codecpar->codec_id);
  AVCodecContext* context = avcodec_alloc_context3(codec);
  check(avcodec_parameters_to_context(context, stream->codecpar), "parameters_to_context");
  context->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
  context->thread_count = 1;
  check(avcodec_open2(context, codec, nullptr), "open2");

  Decoded decoded{.codec = codec->name};
  AVPacket* packet = av_packet_alloc();
  AVFrame* frame = av_frame_alloc();
  const auto receive = [&] {
    while (avcodec_receive_frame(context, frame) >= 0) {
      // The scaler writes whole vectors, beyond the ends of rows too.
      const int stride = (frame->width + 63) / 64 * 64 * 3;
      std::vector<std::uint8_t> wide(static_cast<std::size_t>(stride) * (frame->height + 1));
      SwsContext* scaler =
          sws_getContext(frame->width, frame->height, static_cast<AVPixelFormat>(frame->format), frame->width,
                         frame->height, AV_PIX_FMT_RGB24, SWS_BICUBIC, nullptr, nullptr, nullptr);
      std::uint8_t* const rows[4] = {wide.data()};
      const int strides[4] = {stride};
      sws_scale(scaler, frame->data, frame->linesize, 0, frame->height, rows, strides);
      sws_freeContext(scaler);
      Picture picture;
      picture.Fill(frame->width, frame->height, {});
      for (int y = 0; y < frame->height; ++y) {
        std::copy_n(&wide[static_cast<std::size_t>(y) * stride], frame->width * 3,
                    &picture.rgb[static_cast<std::size_t>(y) * frame->width * 3]);
      }
      decoded.pictures.push_back(std::move(picture));
      decoded.times_s.push_back(static_cast<double>(frame->best_effort_timestamp) *
                                av_q2d(stream->time_base));
    }
  };
  while (av_read_frame(format, packet) >= 0) {
    if (packet->stream_index == index) check(avcodec_send_packet(context, packet), "send_packet");
    const double end_s = static_cast<double>(packet->pts + packet->duration) * av_q2d(stream->time_base);
    decoded.duration_s = std::max(decoded.duration_s, end_s);
    av_packet_unref(packet);
    receive();
  }
  check(avcodec_send_packet(context, nullptr), "flush");
  receive();
  av_frame_free(&frame);
  av_packet_free(&packet);
  avcodec_free_context(&context);
  avformat_close_input(&format);
  return decoded;
}

}  // namespace trireme
