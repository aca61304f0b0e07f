// What the drawings of the built-in environments have in common: the colours of the report's plots.
#pragma once

#include "trireme/picture/picture.h"

namespace trireme::style {

inline constexpr Colour kSky{255, 255, 255};
inline constexpr Colour kGround{228, 231, 235};      // #e4e7eb
inline constexpr Colour kGroundEdge{154, 165, 177};  // #9aa5b1
inline constexpr Colour kInk{31, 41, 51};            // #1f2933
inline constexpr Colour kMuted{82, 96, 109};         // #52606d
inline constexpr Colour kBlue{0, 114, 178};          // #0072b2
inline constexpr Colour kOrange{213, 94, 0};         // #d55e00
inline constexpr Colour kGreen{0, 158, 115};         // #009e73
inline constexpr Colour kLightBlue{86, 180, 233};    // #56b4e9

}  // namespace trireme::style
