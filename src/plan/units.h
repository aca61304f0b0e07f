// Durations and rates as people write them: "50us", "1.2GB/s", "10Gbit/s".
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// A positive duration in seconds: a number with ns, us, ms or s; without a unit it is in seconds. `origin` is
// what the user typed before it, for example "--latency". Throws Error.
double ParseSeconds(std::string_view text, const std::string& origin);

// A positive rate in bytes per second: a number with B/s, kB/s, MB/s, GB/s, or kbit/s, Mbit/s, Gbit/s (powers
// of 1000); without a unit it is in bytes per second. Throws Error.
double ParseBytesPerSecond(std::string_view text, const std::string& origin);

// Three significant digits: "850 ns", "12.3 us", "1.50 ms", "2.00 s"; "-" when not finite.
std::string FormatSeconds(double seconds);

// "9.80 MB/s"; "-" when not finite.
std::string FormatBytesPerSecond(double rate);

}  // namespace trireme
