// The keys of the store and the sentences in which ranks meet: what RendezvousPoint and InitExchange share.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/store/ended.h"
#include "rueda/store/store.h"

namespace rueda::runtime {

inline constexpr Nanos kInitSlice = 250 * kMillisecond;  // between looks for a failure of others
// How old an answer may be that the ranks of a host share.
inline constexpr Nanos kInitLook = 20 * kMillisecond;
inline constexpr Nanos kInitTell = 2 * kSecond;  // for one answer of a store that may be gone

// "<number> open" while ranks may still come, "<number> closed" afterwards.
inline constexpr std::string_view kExchangeKey = "exchange";
// The largest number under which a rank has met and that rank 0 does not know.
inline constexpr std::string_view kLeastKey = "exchange-least";
// The refusal of a rank that came before rank 0.
inline constexpr std::string_view kRefusalKey = "exchange-refused";

struct Announced {
  Epoch number = 0;
  bool is_open = false;
};

Announced parse_announced(std::string_view text);
std::string open_exchange(Epoch number);
std::string closed_exchange(Epoch number);

std::string prefix_of(Epoch number);                 // of the keys of an exchange
std::string failed_key_of(std::string_view prefix);  // the failure that was told first

Deadline within(Deadline deadline, Nanos at_most);

// The rank of this world that will not come, because its launcher says that it has ended. Whoever asks reads
// what the rank has told about a failure after this: it tells before it ends.
std::optional<store::EndedRank> find_ended(store::Store& store, Rank size, Deadline deadline);

Status never_came(const store::EndedRank& ended);
Status left_early(const store::EndedRank& ended);
Status rank_0_has_ended(const Status& here);
Status echo_of(const std::string& first);
// Without what echo_of() has put before it. Empty: it is no echo.
std::optional<std::string> told_by_another(const Status& why);

// What a rank has told of its failure, under one of these keys, or else that one has ended.
Status cause_of(const Status& has_ended, store::Store& store, std::initializer_list<std::string_view> keys);

void log_failure(const Status& status);

}  // namespace rueda::runtime
