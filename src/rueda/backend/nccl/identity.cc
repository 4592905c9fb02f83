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

std::string identity_of(const cuda::Device& device, int version) {
  // Before 2.30 NCCL takes the MIG instances of a GPU for one GPU, because it compares addresses on the PCI
  // bus, and does not know the first of its variables.
  constexpr int kTellsInstancesApart = 23000;
  const bool is_older = version < kTellsInstancesApart;
  // The first allows ranks to share a GPU, the second replaces the name of the host.
  const char* const shares = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const char* const host = std::getenv("NCCL_HOSTID");
  if (!is_older && shares != nullptr && std::string_view(shares) == "1") return {};
  return hex_of(is_older ? device.gpu_uuid() : device.uuid()) + "|" + (host == nullptr ? "" : host);
}

}  // namespace rueda::nccl
