#include "trireme/rpc/token.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {

void CheckToken(const std::string& token) {
  const bool usable = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!usable) Fail("a token may have letters, digits and signs of ASCII only, without spaces");
  if (token.size() > 1024) Fail("a token may have at most 1024 characters; this one has {}", token.size());
}

bool SameSecret(const std::string& a, const std::string& b) {
  // Digests have one length, whatever was sent.
  const std::string x = Sha256Hex(a), y = Sha256Hex(b);
  return CRYPTO_memcmp(x.data(), y.data(), x.size()) == 0;
}

}  // namespace trireme
