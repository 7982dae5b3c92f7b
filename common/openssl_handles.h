// Owners for OpenSSL's objects. Only code that reads or writes certificates
// includes this file.
#ifndef LEEWAY_COMMON_OPENSSL_HANDLES_H_
#define LEEWAY_COMMON_OPENSSL_HANDLES_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace leeway {

template <auto Free>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using X509Ptr = std::unique_ptr<X509, OpensslFree<X509_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, OpensslFree<X509_CRL_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, OpensslFree<GENERAL_NAMES_free>>;

}  // namespace leeway

#endif  // LEEWAY_COMMON_OPENSSL_HANDLES_H_
