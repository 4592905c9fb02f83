// Limits of everything that could otherwise grow without bound, with their reasons.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rueda {

inline constexpr int32_t kMaxRanks = 65'536;           // ranks in one world
inline constexpr size_t kMaxNameBytes = 4'096;         // one tensor name
inline constexpr size_t kMaxDims = 64;                 // dimensions of one tensor (PyTorch's own limit)
inline constexpr size_t kMaxMessageBytes = 64u << 20;  // one control message or agent message
inline constexpr size_t kMaxStoreKeyBytes = 1'024;
inline constexpr size_t kMaxStoreValueBytes = 1u << 20;
inline constexpr int64_t kMaxFusionBytes = int64_t{64} << 30;
inline constexpr size_t kMaxGroups = 4'096;  // process sets alive at once

}  // namespace rueda
