// The part of the C ABI for elastic jobs.
#include <cstdlib>
#include <mutex>
#include <optional>

#include "rueda/capi/json_text.h"
#include "rueda/capi/leaving.h"
#include "rueda/capi/life.h"
#include "rueda/capi/state.h"
#include "rueda/rueda.h"
#include "rueda/status/elastic_board.h"

namespace rueda::capi {
namespace {

// As long as the launcher may take to hear of all members, with agents on hosts that are busy.
constexpr Nanos kAnswerTime = 10 * kSecond;

// Opened at the first use. Null where the launcher has made none, and in a forked child.
status::ElasticBoard* board() {
  static std::once_flag once;
  static auto* const kept = new std::optional<status::ElasticBoard>;
  std::call_once(once, [] {
    const char* const path = std::getenv(status::kBoardVariable);
    if (path == nullptr) return;
    Result<status::ElasticBoard> opened = status::ElasticBoard::open(path);
    if (opened.is_ok()) kept->emplace(std::move(opened).value());
  });
  return *kept && elastic_rank().is_elastic() ? &**kept : nullptr;
}

std::string json_of(const membership::View& view, const membership::Uid& uid) {
  return text_of({{"number", view.number},
                  {"rank", view.rank_of(uid)},
                  {"size", view.size()},
                  {"commit", view.commit()},
                  {"holders", view.holders()},
                  {"joined", view.joined()},
                  {"lost", view.lost}});
}

}  // namespace
}  // namespace rueda::capi

namespace capi = rueda::capi;

extern "C" {

int rueda_is_elastic(void) { return capi::elastic_rank().is_elastic() ? 1 : 0; }

int rueda_elastic_join(const rueda_elastic_join_options* options) {
  if (options == nullptr || options->struct_size != sizeof(rueda_elastic_join_options))
    return capi::fail(
        {rueda::Code::kInvalidArgument, "rueda_elastic_join: struct_size does not match this library."});
  if (options->commit < -1 || options->digest_bytes > rueda::membership::kMaxDigestBytes)
    return capi::fail({rueda::Code::kInvalidArgument,
                       "rueda_elastic_join: commit is -1 or more, and a digest has 256 bytes at most."});
  rueda::runtime::JoinRequest request{.commit = options->commit, .digest = {}};
  if (options->digest != nullptr)
    request.digest.assign(static_cast<const char*>(options->digest), options->digest_bytes);
  if (options->timeout_s > 0) request.timeout = rueda::nanos(options->timeout_s, rueda::kSecond);
  if (options->is_interrupted != nullptr)
    request.is_interrupted = [ask = options->is_interrupted] { return ask() != 0; };
  const rueda::Status joined = capi::join_view(request);
  return joined.is_ok() ? RUEDA_OK : capi::fail(joined);
}

const char* rueda_elastic_view(void) {
  const rueda::membership::View* const view = capi::elastic_rank().view();
  return capi::keep_text(view == nullptr ? "{}" : capi::json_of(*view, capi::elastic_rank().uid()));
}

void rueda_elastic_committed(int64_t commit) {
  rueda::status::ElasticBoard* const board = capi::board();
  if (board == nullptr && !capi::is_forked_child()) return capi::elastic_rank().committed(commit);
  if (board == nullptr) return;
  board->committed(commit, capi::kAnswerTime);
  static std::once_flag once;
  std::call_once(once, [&] { capi::leave_on_sigterm(*board); });
}

int rueda_elastic_news(rueda_elastic_news_info* news) {
  if (news == nullptr || news->struct_size != sizeof(rueda_elastic_news_info))
    return capi::fail(
        {rueda::Code::kInvalidArgument, "rueda_elastic_news: struct_size does not match this library."});
  news->are_hosts_added = news->are_hosts_removed = news->does_leave = 0;
  news->at_commit = -1;
  const rueda::status::ElasticBoard* const board = capi::board();
  if (board == nullptr) {
    news->at_commit = capi::elastic_rank().leave_at();
    news->are_hosts_added = news->at_commit >= 0 ? 1 : 0;
    return RUEDA_OK;
  }
  const rueda::status::ViewChange change = board->read();
  news->are_hosts_added = change.are_hosts_added ? 1 : 0;
  news->are_hosts_removed = change.are_hosts_removed ? 1 : 0;
  news->does_leave = change.does_leave ? 1 : 0;
  if (change.phase == rueda::status::ViewChange::Phase::kConfirmed) news->at_commit = change.commit;
  return RUEDA_OK;
}

}  // extern "C"
