#include "launch/elastic_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "rueda/base/counted.h"

namespace rueda::launch {

using membership::Uid;
using membership::View;

std::string describe_view(const View& view) {
  std::string text = fmt::format("view {} has {}", view.number, counted(view.size(), "rank"));
  if (!view.lost.empty()) text += fmt::format("; gone: {}", fmt::join(view.lost, ", "));
  std::vector<Uid> joined;
  for (const Rank rank : view.joined()) joined.push_back(view.members[static_cast<size_t>(rank)].uid);
  if (!joined.empty()) text += fmt::format("; new: {}", fmt::join(joined, ", "));
  if (view.commit() >= 0) text += fmt::format("; it goes on from commit {}", view.commit());
  return text;
}

std::string describe_loss(const Ending& ending, const Uid& uid, const View& view) {
  const bool is_member = view.rank_of(uid) >= 0;
  return fmt::format("{} ({})", describe(ending),
                     is_member ? fmt::format("process {} of view {}", uid, view.number)
                               : fmt::format("process {}, which was no member", uid));
}

std::string describe_early_end(const Ending& ending, const Uid& uid, const View& view) {
  return fmt::format("{} (process {} of view {}) while the others went on; it counts as lost",
                     describe(ending), uid, view.number);
}

std::string describe_absence(const std::string& host, const std::string& why) {
  return fmt::format("host {} cannot be used: {}; it is tried again as long as it belongs to the job", host,
                     why);
}

}  // namespace rueda::launch
