// What changed from one job, or epoch, to another.
#include <algorithm>
#include <cmath>
#include <set>

#include "timeline/shares_json.h"
#include "timeline/summary.h"
#include "timeline/units.h"
#include "timeline/words.h"

namespace rueda::timeline {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownChanges = 4;
constexpr double kWorthSaying = 0.01;                // of a step's time
constexpr double kSameSteps = 2, kSameBytes = 1.05;  // the larger number over the smaller one

// A rank of both jobs, and how much more of a step it takes now without waiting for others.
struct RankChange {
  const RankSummary* before;
  const RankSummary* after;
  double change = 0;
};
double work_of(const RankSummary& rank) {
  return length_of(rank) - rank.shares[static_cast<size_t>(StepShare::kWaiting)];
}

// Those that changed most first. Where the number of ranks changed, each has another part of the data, and
// perhaps another host.
std::vector<RankChange> changes_of(const Summary& before, const Summary& after) {
  std::vector<RankChange> changes;
  if (before.size != after.size) return changes;
  for (const RankSummary& then : before.by_rank) {
    const auto now = std::ranges::find(after.by_rank, then.rank, &RankSummary::rank);
    if (now != after.by_rank.end()) changes.push_back({&then, &*now, work_of(*now) - work_of(then)});
  }
  std::ranges::stable_sort(changes, std::greater<>(),
                           [](const RankChange& one) { return std::abs(one.change); });
  return changes;
}

std::string change_text(double change) { return (change < 0 ? "-" : "+") + time_text(std::abs(change)); }

// Which share of this rank changed most, in the direction of the whole.
StepShare most_changed(const Shares& before, const Shares& after, double change) {
  const double direction = change < 0 ? -1 : 1;
  size_t most = 0;
  for (size_t i = 1; i < kShares; ++i)
    if (direction * (after[i] - before[i]) > direction * (after[most] - before[most])) most = i;
  return static_cast<StepShare>(most);
}

std::string rank_changes(const Summary& before, const Summary& after) {
  std::string text;
  const std::vector<RankChange> changes = changes_of(before, after);
  for (size_t i = 0; i < std::min(changes.size(), kShownChanges); ++i) {
    const RankChange& one = changes[i];
    if (std::abs(one.change) < kWorthSaying * before.step_length) break;
    Shares then = one.before->shares, now = one.after->shares;
    then[static_cast<size_t>(StepShare::kWaiting)] = now[static_cast<size_t>(StepShare::kWaiting)] = 0;
    text +=
        fmt::format("  rank {} on {}: {} of its own in a step, most of all {}\n", one.after->rank,
                    one.after->host, change_text(one.change), name_of(most_changed(then, now, one.change)));
  }
  return text.empty() ? text : "\nRanks that changed most\n" + text;
}

// Links that are slow in one job and not in the other.
std::vector<SlowLink> only_in(const Summary& one, const Summary& other) {
  std::vector<SlowLink> links = slow_links_of(one);
  std::erase_if(links, [theirs = slow_links_of(other)](const SlowLink& link) {
    return std::ranges::any_of(theirs,
                               [&](const SlowLink& their) { return ends_of(their) == ends_of(link); });
  });
  return links;
}

std::string link_changes(const Summary& before, const Summary& after) {
  std::string text;
  const auto add = [&](const Summary& one, const Summary& other, std::string_view when) {
    for (const SlowLink& link : only_in(one, other))
      text += fmt::format("The link {} is slow in the job {} alone: {} on a busy connection.\n",
                          link_text(one, link), when, gbps_text(link.speed));
  };
  add(after, before, "after");
  add(before, after, "before");
  return text;
}

Json links_json(const std::vector<SlowLink>& links) {
  Json json = Json::array();
  for (const SlowLink& link : links) {
    Json ranks = Json::array({link.end});
    if (link.other >= 0) ranks.push_back(link.other);
    json.push_back({{"ranks", ranks}, {"gbps", link.speed}});
  }
  return json;
}

bool differ(double a, double b, double factor) { return std::max(a, b) > factor * std::min(a, b); }

std::set<std::string> hosts_of(const Summary& summary) {
  std::set<std::string> hosts;
  for (const RankSummary& rank : summary.by_rank) hosts.insert(rank.host);
  return hosts;
}

std::set<std::string> tensors_of(const Summary& summary) {
  std::set<std::string> names;
  for (const TransferSummary& one : summary.by_transfer) names.insert(one.name);
  return names;
}

// Whether the jobs reduce the same tensors; "": they do.
std::string model_note(const Summary& before, const Summary& after) {
  const std::set<std::string> then = tensors_of(before), now = tensors_of(after);
  const bool has_common =
      std::ranges::any_of(then, [&](const std::string& name) { return now.contains(name); });
  if (!then.empty() && !now.empty() && !has_common)
    return "No tensor has the same name in both jobs, so they train different models: what changed may be "
           "the "
           "model.";
  const auto of_step = [](const Summary& s) {
    return static_cast<double>(s.bytes) / static_cast<double>(s.steps);
  };
  const double a = of_step(before), b = of_step(after);
  if (!before.has_steps || !after.has_steps || !differ(a, b, kSameBytes)) return {};
  return fmt::format(
      "A step transfers {} for each rank before and {} after: the model, its precision or the "
      "compression is another one.",
      size_text(static_cast<int64_t>(a)), size_text(static_cast<int64_t>(b)));
}

// What makes the two hard to compare, each a sentence.
std::vector<std::string> notes_of(const Summary& before, const Summary& after) {
  std::vector<std::string> notes;
  if (before.size != after.size)
    notes.push_back(
        fmt::format("{} before and {} after: an average rank is compared with an average rank, and "
                    "no rank with itself.",
                    count_text(before.size, "rank"), count_text(after.size, "rank")));
  if (const size_t a = hosts_of(before).size(), b = hosts_of(after).size(); a != b)
    notes.push_back(fmt::format("The ranks were on {} before and on {} after.",
                                count_text(static_cast<int64_t>(a), "host"),
                                count_text(static_cast<int64_t>(b), "host")));
  if (before.has_steps != after.has_steps)
    notes.push_back(fmt::format("The job {} marks no steps: windows of time are compared with steps.",
                                before.has_steps ? "after" : "before"));
  const auto few = static_cast<double>(before.steps), many = static_cast<double>(after.steps);
  if (differ(few, many, kSameSteps))
    notes.push_back(
        fmt::format("The averages are of {} before and of {} after: the first steps of a job are "
                    "longer, and weigh more among few.",
                    count_text(before.steps, "step"), count_text(after.steps, "step")));
  if (std::string note = model_note(before, after); !note.empty()) notes.push_back(std::move(note));
  return notes;
}

std::string verdict(const Summary& before, const Summary& after) {
  const double change = after.step_length - before.step_length;
  if (std::abs(change) < kWorthSaying * before.step_length)
    return fmt::format("A step takes as long as before: the difference is less than {:.0f} % of it.\n",
                       kWorthSaying * 100);
  const StepShare most = most_changed(before.shares, after.shares, change);
  const auto at = static_cast<size_t>(most);
  return fmt::format("A step takes {} {} than before, most of all because of {} ({}).\n",
                     time_text(std::abs(change)), change < 0 ? "less" : "more", name_of(most),
                     change_text(after.shares[at] - before.shares[at]));
}

Json job_json(const Summary& summary) {
  Json json = {{"epoch", summary.epoch},          {"ranks", summary.size},
               {"steps", summary.steps},          {"step_ns", summary.step_length},
               {"step_p50_ns", summary.step_p50}, {"step_p95_ns", summary.step_p95},
               {"overlap", summary.overlap},      {"bus_gbps", summary.bus_gbps}};
  json["shares"] = shares_json(summary.shares);
  return json;
}

}  // namespace

std::string diff_text(const Summary& before, const Summary& after) {
  if (before.steps == 0 || after.steps == 0) return "One of the two jobs has no finished step to compare.\n";
  std::string text;
  for (const std::string& note : notes_of(before, after)) text += "Note: " + note + "\n";
  text += fmt::format("{:<14}{:>12}{:>12}{:>12}{:>9}\n", "of a step", "before", "after", "change", "");
  const auto row = [&](std::string_view name, double a, double b) {
    const std::string part =
        a > 0 ? fmt::format("{}{}", b >= a ? "+" : "-", percent_text(std::abs(b - a) / a)) : std::string();
    text += fmt::format("{:<14}{:>12}{:>12}{:>12}{:>9}\n", name, time_text(a), time_text(b),
                        change_text(b - a), part);
  };
  row("length", before.step_length, after.step_length);
  for (size_t i = 0; i < kShares; ++i)
    if (before.shares[i] > 0 || after.shares[i] > 0)
      row(name_of(static_cast<StepShare>(i)), before.shares[i], after.shares[i]);
  text += fmt::format("{:<14}{:>12}{:>12}\n", "overlap", percent_text(before.overlap),
                      percent_text(after.overlap));
  text += fmt::format("{:<14}{:>12}{:>12}\n", "GB/s", fmt::format("{:.3g}", before.bus_gbps),
                      fmt::format("{:.3g}", after.bus_gbps));
  return for_terminal(text + "\n" + verdict(before, after) + link_changes(before, after) +
                      rank_changes(before, after));
}

std::string diff_json(const Summary& before, const Summary& after) {
  Json json = {{"before", job_json(before)}, {"after", job_json(after)}, {"notes", Json::array()}};
  if (before.steps > 0 && after.steps > 0) json["notes"] = notes_of(before, after);
  json["slow_only_before"] = links_json(only_in(before, after));
  json["slow_only_after"] = links_json(only_in(after, before));
  Json& ranks = json["by_rank"] = Json::array();
  for (const RankChange& one : changes_of(before, after))
    ranks.push_back({{"rank", one.after->rank},
                     {"host", one.after->host},
                     {"own_change_ns", one.change},
                     {"cost_before_ns", one.before->cost},
                     {"cost_after_ns", one.after->cost}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace rueda::timeline
