#include "rueda/backend/device/peer_terms.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace rueda::backend {
namespace {

// Sections begin at multiples of 64 elements, so one may be a little larger than was asked for.
constexpr size_t kSlack = 4096;
constexpr int64_t kShareElements = 64;

template <size_t kBytes>
void set_text(char (&to)[kBytes], std::string_view text) {
  std::memset(to, 0, kBytes);
  std::memcpy(to, text.data(), std::min(text.size(), kBytes - 1));
}

template <size_t kBytes>
std::string text_of(const char (&from)[kBytes]) {
  return {from, strnlen(from, kBytes)};
}

std::string rank_text(const Group& group, size_t member) {
  return "rank " + std::to_string(group.members[member]);
}

// As nvidia-smi writes it.
std::string uuid_text(std::string_view uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

void PeerRow::set_gpu(const cuda::CUuuid& uuid, std::string_view text) {
  std::ranges::copy(uuid.bytes, gpu);
  set_text(name, text);
}

void PeerRow::set_why_not(std::string_view text) { set_text(why_not, text); }

std::string shared_gpu_of(const Group& group, std::span<const PeerRow> rows) {
  std::map<std::string, size_t> owners;  // the first member with each GPU
  for (size_t member = 0; member < rows.size(); ++member) {
    const std::string gpu(reinterpret_cast<const char*>(rows[member].gpu), sizeof(rows[member].gpu));
    if (std::ranges::all_of(gpu, [](char byte) { return byte == 0; })) continue;
    const auto [owner, is_new] = owners.try_emplace(gpu, member);
    if (!is_new)
      return rank_text(group, owner->second) + " and " + rank_text(group, member) + " use the same GPU (" +
             text_of(rows[member].name) + ", UUID " + uuid_text(gpu) +
             "), so they share its memory and its time; give each rank a GPU of its own.";
  }
  return {};
}

std::string refusal_of(const Group& group, std::span<const PeerRow> rows) {
  for (size_t member = 0; member < rows.size(); ++member)
    if (const std::string why = text_of(rows[member].why_not); !why.empty())
      return rank_text(group, member) + ": " + why;
  return {};
}

size_t section_bytes_of(std::span<const PeerRow> rows) {
  const auto least = std::ranges::min_element(rows, {}, &PeerRow::slot_bytes);
  const auto bytes = static_cast<size_t>(std::max<int64_t>(least->slot_bytes, 0));
  return bytes > kSlack ? bytes - kSlack : 0;
}

size_t slot_bytes_for(size_t section_bytes) { return section_bytes + kSlack; }

schedule::Spec sum_spec(DType dtype, size_t count) {
  return {.dtype = dtype,
          .op = ReduceOp::kSum,
          .count = static_cast<int64_t>(count),
          .counts = {},
          .scale = {},
          .segment_counts = {}};
}

ElementRange share_of(int64_t count, size_t index, size_t adders) {
  const auto n = static_cast<int64_t>(adders);
  const int64_t each = ((count + n - 1) / n + kShareElements - 1) / kShareElements * kShareElements;
  const int64_t begin = std::min(count, each * static_cast<int64_t>(index));
  return {.begin = begin, .count = std::min(count - begin, each)};
}

}  // namespace rueda::backend
