#include "trireme/rpc/grpc/security.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "trireme/base/error.h"
#include "trireme/rpc/token.h"

namespace trireme {
namespace {

template <auto kFree>
struct Freed {
  void operator()(auto* object) const { kFree(object); }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

Bio Text(const std::string& pem) { return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

// A key with a pass phrase is refused, not asked for on the terminal.
int NoPassPhrase(char*, int, int, void*) { return -1; }

std::string TimeText(const ASN1_TIME* time) {
  const Bio out(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(out.get(), time);
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

// The first certificate of `pem`, which must be valid now.
Certificate ReadCertificate(const std::string& pem, const char* whose) {
  Certificate certificate(PEM_read_bio_X509(Text(pem).get(), nullptr, NoPassPhrase, nullptr));
  ERR_clear_error();
  if (!certificate) Fail("the {} is not a certificate in PEM form", whose);
  if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0) {
    Fail("the {} is valid only from {} on: look at the clock, or get another one", whose,
         TimeText(X509_get0_notBefore(certificate.get())));
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    Fail("the {} has expired on {}: get a new one", whose, TimeText(X509_get0_notAfter(certificate.get())));
  }
  return certificate;
}

// gRPC itself would only say that something is wrong, and late.
void CheckKeys(const Security& security, bool server) {
  if (!security.authority.empty()) ReadCertificate(security.authority, "authority");
  if (security.certificate.empty() != security.private_key.empty()) {
    Fail("a certificate and its private key must be given together");
  }
  if (security.certificate.empty()) {
    if (server) Fail("a server with TLS needs a certificate and its private key");
    return;
  }
  const Certificate certificate = ReadCertificate(security.certificate, "certificate");
  const Key key(PEM_read_bio_PrivateKey(Text(security.private_key).get(), nullptr, NoPassPhrase, nullptr));
  const bool fits = key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!key) Fail("the private key is not a key in PEM form, or needs a pass phrase");
  if (!fits) Fail("the private key does not belong to the certificate");
}

void CheckNoKeys(const Security& security) {
  if (!security.certificate.empty() || !security.private_key.empty() || !security.authority.empty()) {
    Fail("certificates and keys are given, but TLS is off: turn it on, or leave them out");
  }
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const Security& security) {
  CheckToken(security.token);
  if (!security.tls) {
    CheckNoKeys(security);
    return grpc::InsecureChannelCredentials();
  }
  CheckKeys(security, false);
  return grpc::SslCredentials({.pem_root_certs = security.authority,
                               .pem_private_key = security.private_key,
                               .pem_cert_chain = security.certificate});
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const Security& security) {
  CheckToken(security.token);
  if (!security.tls) {
    CheckNoKeys(security);
    return grpc::InsecureServerCredentials();
  }
  CheckKeys(security, true);
  grpc::SslServerCredentialsOptions options(security.authority.empty()
                                                ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = security.authority;
  options.pem_key_cert_pairs.push_back({security.private_key, security.certificate});
  return grpc::SslServerCredentials(options);
}

}  // namespace trireme
