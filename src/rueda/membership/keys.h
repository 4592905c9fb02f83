// Where processes of an elastic job and the launcher that decides its views find one another's words in the
// store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rueda/membership/view.h"

namespace rueda::membership {

// Variables of each process: its uid, 1 if it belongs to the first view and 0 if it joins later, and how many
// seconds it waits for a view.
inline constexpr const char* kUidVariable = "RUEDA_ELASTIC_UID";
inline constexpr const char* kFirstViewVariable = "RUEDA_ELASTIC_VIEW";
inline constexpr const char* kTimeoutVariable = "RUEDA_ELASTIC_TIMEOUT";
// Of a process of a job without a launcher: 1 if it joins one that runs; where else than at RUEDA_STORE it
// looks for members.
inline constexpr const char* kJoinerVariable = "RUEDA_JOINER";
inline constexpr const char* kMembersVariable = "RUEDA_ELASTIC_MEMBERS";

// The value is the encoded view. It is set once, by compare and set.
inline std::string view_key(int64_t number) { return "elastic/view/" + std::to_string(number); }

// The value is the encoded Ready of the process.
inline constexpr std::string_view kReadyPrefix = "elastic/ready/";
inline std::string ready_key(std::string_view uid) { return std::string(kReadyPrefix) + std::string(uid); }

// What a process that has left view `after` is told: the number of the view to which it belongs now, as text,
// or a sentence that says why it belongs to none.
inline std::string answer_key(std::string_view uid, int64_t after) {
  return "elastic/answer/" + std::string(uid) + "/" + std::to_string(after);
}
// For whom the next view waits, as words; empty: for nobody.
inline constexpr std::string_view kAwaitedKey = "elastic/awaited";
inline constexpr std::string_view kAnswerView = "view ", kAnswerNo = "no ";

// ---- in the stores that members serve where no launcher does ----

// The encoded vote of the member that serves the store, for the view of this number.
inline std::string vote_key(int64_t number) { return "elastic/vote/" + std::to_string(number); }
// The value is the encoded newest view to which the member belongs.
inline constexpr std::string_view kNewestKey = "elastic/newest";
// The encoded Ready of the member, once it has left view `after`.
inline std::string left_key(int64_t after) { return "elastic/left/" + std::to_string(after); }
// Ready of a process of the first view, without a commit: who it is.
inline std::string first_key(Rank rank) { return "elastic/first/" + std::to_string(rank); }
// "<view> <commit>": all members leave that view at that commit, because somebody joins.
inline constexpr std::string_view kLeaveAtKey = "elastic/leave-at";

// Below this are the keys of the init exchanges of a view. Those of the first view have none: it is like a
// job of fixed size.
inline std::string exchange_prefix(int64_t view) {
  return view <= 1 ? std::string() : "v" + std::to_string(view) + "/";
}

}  // namespace rueda::membership
