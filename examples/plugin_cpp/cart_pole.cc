// CartPole as a plug-in, all copies at once: the state is one array per variable, and a step is loops that a compiler turns
// into vector instructions. The arithmetic is that of Trireme's own CartPole-v1, so a training ends with the same bits.
//
//   c++ -O3 -ffp-contract=off -shared -fPIC cart_pole.cc -o libcart_pole.so
//   trireme train --env plugin:./libcart_pole.so
//
// (-ffp-contract=off: every processor rounds alike.)
#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "env_plugin.h"

// Compiled for several kinds of processors; the best one is taken when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_SEVERAL_PROCESSORS __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define FOR_SEVERAL_PROCESSORS
#endif

namespace {

constexpr double kMaxX = 2.4, kMaxTheta = 12 * 2 * 3.141592653589793238 / 360;

struct CartPoles {
  explicit CartPoles(size_t n) : x(n), x_dot(n), theta(n), theta_dot(n) {}
  std::vector<double> x, x_dot, theta, theta_dot;  // [copies]
};

CartPoles& Of(void* batch) { return *static_cast<CartPoles*>(batch); }

const char* Describe(const trireme_value*, trireme_spec* spec) {
  trireme_obs_floats(spec, 4);
  trireme_discrete(spec, 2);
  spec->max_episode_steps = 500;
  spec->reward_threshold = 475;
  return nullptr;
}

const char* Create(const trireme_value*, uint32_t copies, void** batch) try {
  *batch = new CartPoles(copies);
  return nullptr;
} catch (const std::bad_alloc&) {
  return "not enough memory";
}

void Destroy(void* batch) { delete &Of(batch); }

const char* Reset(void* batch, uint32_t count, const uint32_t* copies, const trireme_random* streams,
                  const trireme_buffers* to) {
  CartPoles& s = Of(batch);
  for (uint32_t k = 0; k < count; ++k) {
    trireme_random random = streams[k];
    const auto draw = [&] { return -0.05 + 0.1 * trireme_uniform(&random); };
    const uint32_t i = copies[k];
    float* obs = static_cast<float*>(to->obs) + 4 * i;
    obs[0] = static_cast<float>(s.x[i] = draw());
    obs[1] = static_cast<float>(s.x_dot[i] = draw());
    obs[2] = static_cast<float>(s.theta[i] = draw());
    obs[3] = static_cast<float>(s.theta_dot[i] = draw());
  }
  return nullptr;
}

// Sine and cosine of a small angle.
inline void SinCos(double x, double& sin, double& cos) {
  const double z = x * x;
  double s = z * 0x1.5e0333e3ccba1p-33 - 0x1.ae5ff4f957b14p-26;
  s = s * z + 0x1.71de3781495ffp-19;
  s = s * z - 0x1.a01a019e73325p-13;
  s = s * z + 0x1.1111111110b6cp-7;
  s = s * z - 0x1.5555555555555p-3;
  double c = z * -0x1.9075bb669682cp-37 + 0x1.1eeb5de1e2b95p-29;
  c = c * z - 0x1.27e4fa0d3726cp-22;
  c = c * z + 0x1.a01a019f4671dp-16;
  c = c * z - 0x1.6c16c16c16944p-10;
  c = c * z + 0x1.5555555555555p-5;
  const double head = 1.0 - 0.5 * z;
  sin = x + x * (z * s);
  cos = head + (((1.0 - head) - 0.5 * z) + z * z * c);
}

FOR_SEVERAL_PROCESSORS void Advance(size_t n, const float* __restrict action, double* __restrict x,
                                    double* __restrict x_dot, double* __restrict theta,
                                    double* __restrict theta_dot, float* __restrict obs,
                                    uint8_t* __restrict terminated) {
  constexpr double kGravity = 9.8, kPoleMass = 0.1, kTotalMass = kPoleMass + 1.0, kHalfLength = 0.5,
                   kPoleMassLength = kPoleMass * kHalfLength, kForce = 10.0, kTimeStep = 0.02;
  for (size_t i = 0; i < n; ++i) {
    const double force = action[i] == 1.0f ? kForce : -kForce;
    double sin, cos;
    SinCos(theta[i], sin, cos);
    const double push = (force + kPoleMassLength * (theta_dot[i] * theta_dot[i]) * sin) / kTotalMass;
    const double theta_acc =
        (kGravity * sin - cos * push) / (kHalfLength * (4.0 / 3.0 - kPoleMass * (cos * cos) / kTotalMass));
    const double x_acc = push - kPoleMassLength * theta_acc * cos / kTotalMass;
    x[i] += kTimeStep * x_dot[i];
    x_dot[i] += kTimeStep * x_acc;
    theta[i] += kTimeStep * theta_dot[i];
    theta_dot[i] += kTimeStep * theta_acc;
    obs[4 * i] = static_cast<float>(x[i]);
    obs[4 * i + 1] = static_cast<float>(x_dot[i]);
    obs[4 * i + 2] = static_cast<float>(theta[i]);
    obs[4 * i + 3] = static_cast<float>(theta_dot[i]);
  }
  for (size_t i = 0; i < n; ++i) {  // apart: loops over numbers of one size make the better vectors
    terminated[i] = (x[i] < -kMaxX) | (x[i] > kMaxX) | (theta[i] < -kMaxTheta) | (theta[i] > kMaxTheta);
  }
}

const char* Step(void* batch, const float* actions, const trireme_buffers* to) {
  CartPoles& s = Of(batch);
  const size_t n = s.x.size();
  Advance(n, actions, s.x.data(), s.x_dot.data(), s.theta.data(), s.theta_dot.data(),
          static_cast<float*>(to->obs), to->terminated);
  std::fill_n(to->rewards, n, 1.0f);
  return nullptr;
}

uint64_t StateBytes(void* batch) { return 4 * sizeof(double) * Of(batch).x.size(); }

const char* Save(void* batch, void* to) {
  CartPoles& s = Of(batch);
  double* at = static_cast<double*>(to);
  for (const std::vector<double>* variable : {&s.x, &s.x_dot, &s.theta, &s.theta_dot}) {
    at = std::copy(variable->begin(), variable->end(), at);
  }
  return nullptr;
}

const char* Load(void* batch, const void* from, uint64_t bytes) {
  if (bytes != StateBytes(batch)) return "the saved state has another size";
  CartPoles& s = Of(batch);
  const double* at = static_cast<const double*>(from);
  for (std::vector<double>* variable : {&s.x, &s.x_dot, &s.theta, &s.theta_dot}) {
    std::copy_n(at, variable->size(), variable->begin());
    at += variable->size();
  }
  return nullptr;
}

const trireme_env kCartPole = {"CartPole-v1",
                               "balance a pole on a cart; 2 actions",
                               nullptr,
                               0,
                               0,
                               Describe,
                               Create,
                               Destroy,
                               Reset,
                               Step,
                               StateBytes,
                               Save,
                               Load};

}  // namespace

TRIREME_PLUGIN(&kCartPole)
