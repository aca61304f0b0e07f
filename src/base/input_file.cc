#include "trireme/base/input_file.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

std::ifstream OpenInputFile(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) Fail("cannot read {}: it is a folder", path.string());
  std::ifstream in(path, std::ios::binary);
  if (!in) Fail("cannot read {}: {}", path.string(), std::strerror(errno));
  return in;
}

std::string Sha256Hex(std::istream& in) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  TRIREME_CHECK(EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  std::vector<char> piece(1 << 18);
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    TRIREME_CHECK(EVP_DigestUpdate(context.get(), piece.data(), static_cast<std::size_t>(in.gcount())) == 1);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  TRIREME_CHECK(EVP_DigestFinal_ex(context.get(), digest.data(), &size) == 1);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace trireme
