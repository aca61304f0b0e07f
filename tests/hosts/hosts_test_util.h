// What tests on several hosts share.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "network.h"
#include "run_util.h"
#include "trireme/comm/link.h"

namespace trireme::testing {

// Four hosts, one way between two of them takes a millisecond, at 200 Mbit/s.
inline constexpr Cable kFastCable{.latency = std::chrono::microseconds(500), .bytes_per_s = 25e6};

// A test with a network of four hosts and a folder that they share. Skipped where namespaces cannot be made.
class HostsTest : public CliTest {
 protected:
  static constexpr int kHosts = 4;

  void SetUp() override {
    CliTest::SetUp();
    const std::string reason = WhyNoNamespaces();
    if (!reason.empty()) GTEST_SKIP() << "cannot make hosts: " << reason;
    network_ = std::make_unique<Network>(kHosts, cable());
  }
  void TearDown() override {
    network_.reset();
    CliTest::TearDown();
  }
  // What a run measured of its links: a frame passes two cables, and nothing is faster than they are. A busy
  // machine can take what it adds to empty messages for latency, but not make a large one arrive too early.
  static void ExpectLinksAreNoBetterThan(const Cable& cable, const Json& result) {
    ASSERT_TRUE(result.contains("links"));
    for (const Json& link : result["links"]) {
      const double latency_s = std::chrono::duration<double>(2 * cable.latency).count();
      EXPECT_GE(link["latency_s"], latency_s);
      const double large = ProcessLink::kLarge;
      EXPECT_GE(link["latency_s"].get<double>() + large / link["bytes_per_s"].get<double>(),
                latency_s + large / (1.05 * cable.bytes_per_s));
    }
  }
  virtual Cable cable() const { return kFastCable; }

  std::unique_ptr<Network> network_;
};

}  // namespace trireme::testing
