#include "rueda/backend/nccl/identity.h"

#include <cstdlib>
#include <string_view>

namespace rueda::nccl {
namespace {

std::string hex_of(const cuda::CUuuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : uuid.bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

std::string identity_of(const cuda::Device& device) {
  // NCCL's own variables: the first allows ranks to share a GPU, the second replaces the name of the host.
  const char* const shares = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const char* const host = std::getenv("NCCL_HOSTID");
  if (shares != nullptr && std::string_view(shares) == "1") return {};
  return (host == nullptr ? std::string() : std::string(host)) + "|" + hex_of(device.uuid());
}

}  // namespace rueda::nccl
