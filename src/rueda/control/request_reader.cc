#include "rueda/control/request_reader.h"

#include <cstring>

namespace rueda::control {

Result<SharedSubmitted> RequestReader::read(std::span<const std::byte> payload) {
  const bool is_known = !last_.empty() && last_.size() == payload.size() &&
                        std::memcmp(last_.data(), payload.data(), payload.size()) == 0;
  if (is_known) return of_last_;
  Result<Submitted> submitted = decode_submitted(payload);
  if (!submitted.is_ok()) return submitted.status();
  SharedSubmitted read{
      .plans_begun = submitted.value().plans_begun,
      .requests = std::make_shared<const std::vector<Request>>(std::move(submitted.value().requests))};
  last_.clear();
  of_last_ = {};
  if (payload.size() > kMaxKept) return read;
  last_.assign(payload.begin(), payload.end());
  of_last_ = read;
  return read;
}

}  // namespace rueda::control
