#include <algorithm>
#include <utility>

#include "timeline/summary.h"
#include "timeline/units.h"
#include "timeline/words.h"

namespace rueda::timeline {
namespace {

constexpr size_t kShownTransfers = 8, kShownRanks = 16, kShownLinks = 8;

std::string bar(double part) {
  const auto length = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * 40 + 0.5);
  return std::string(length, '#');
}

std::string head(const Summary& s) {
  std::string text = head_text(s) + "\n" + job_text(s) + ", on " + hosts_text(s) + "\n";
  if (!s.command.empty()) text += s.command + "\n";
  if (s.clock_bound > 0) text += clocks_text(s) + "\n";
  for (const std::string& remark : s.remarks) text += "Note: " + remark + "\n";
  return text;
}

std::string shares(const Summary& s) {
  std::string text = fmt::format("\nAn average step of an average rank\n");
  for (size_t i = 0; i < kShares; ++i) {
    const double part = s.shares[i] / s.step_length;
    if (s.shares[i] <= 0 && i != 0) continue;
    text += fmt::format("  {:<12}{:>9}  {:>6}  {:<40}  {}\n", name_of(static_cast<StepShare>(i)),
                        time_text(s.shares[i]), percent_text(part), bar(part),
                        explain(static_cast<StepShare>(i)));
  }
  text += fmt::format("  {} of the time is explained by records.\n", percent_text(1 - s.unattributed));
  if (s.knows_waits)
    text += fmt::format("  Overlap: {} of the time of transfers was hidden behind computing.\n",
                        percent_text(s.overlap));
  else
    text +=
        "  Overlap is not known: this program does not say when it waits, so all time of transfers counts as "
        "blocked.\n";
  return text;
}

// Which ranks decided how long the steps were, and by what.
std::string critical_path(const Summary& s) {
  if (s.by_rank.size() < 2) return {};
  return fmt::format("\nCritical path, through the rank that waits least: {}\n  {}\n", critical_ranks_text(s),
                     shares_text(s.critical, 0));
}

std::string ranks(const Summary& s) {
  std::string text = "\nRanks, those first for which the others wait most\n";
  text += fmt::format("  {:>5}  {:<16}{:>12}{:>12}{:>12}{:>12}{:>12}  {:<21}\n", "rank", "host",
                      "others wait", "last to", "compute", "input", "waiting", "why it is late");
  const std::vector<RankSummary> sorted = latest_first(s.by_rank);
  const auto of = [](const RankSummary& rank, StepShare share) {
    return rank.shares[static_cast<size_t>(share)];
  };
  for (size_t i = 0; i < std::min(sorted.size(), kShownRanks); ++i) {
    const RankSummary& rank = sorted[i];
    text += fmt::format("  {:>5}  {:<16}{:>12}{:>12}{:>12}{:>12}{:>12}  {:<16}\n", rank.rank,
                        rank.host.substr(0, 15), time_text(rank.cost), count_text(rank.last, "call"),
                        time_text(of(rank, StepShare::kCompute)), time_text(of(rank, StepShare::kInput)),
                        time_text(of(rank, StepShare::kWaiting)), lateness_text(s, rank));
  }
  if (sorted.size() > kShownRanks)
    text += fmt::format("  and {} more (--json lists all)\n", sorted.size() - kShownRanks);
  if (const std::string late = late_transfers_text(s); !late.empty()) text += "  " + late + "\n";
  return text;
}

// The last characters of a name, on one line. Of a character that is cut (UTF-8) no byte is left.
std::string end_of(std::string name, size_t room) {
  std::ranges::replace(name, '\n', '?');
  if (name.size() <= room) return name;
  size_t from = name.size() - room + 1;
  while (from < name.size() && (static_cast<unsigned char>(name[from]) & 0xC0) == 0x80) ++from;
  return "…" + name.substr(from);
}

std::string transfers(const Summary& s) {
  const SpeedUnit unit = unit_of_transfers(s);
  std::string text = "\nTransfers: " + transfers_text(s);
  text += fmt::format("\n  {:<44}{:>10}{:>8}{:>11}{:>11}{:>10}\n", "tensors", "size", "times", "transfer",
                      "waiting", unit.name);
  for (size_t i = 0; i < std::min(s.by_transfer.size(), kShownTransfers); ++i) {
    const TransferSummary& one = s.by_transfer[i];
    const std::string more = one.tensors > 1 ? fmt::format(" +{}", one.tensors - 1) : std::string();
    const size_t room = 43 - more.size();
    const std::string name = end_of(one.name, room);
    const std::string speed = one.bus_gbps > 0 ? unit.text(one.bus_gbps) : "";
    text += fmt::format("  {:<44}{:>10}{:>8}{:>11}{:>11}{:>10}\n", name + more, size_text(one.bytes),
                        one.calls, time_text(one.transfer), time_text(one.waiting), speed);
  }
  return text;
}

// Where bytes moved, and how fast, from messages.
std::string transfers_by_link(const Summary& s) {
  if (s.by_link.empty()) return {};
  const auto line = [](const auto& cells) {
    return fmt::format("  {:<16}{:>12}{:>9}{:>14}{:>12}{:>12}\n", cells[0], cells[1], cells[2], cells[3],
                       cells[4], cells[5]);
  };
  std::string text = fmt::format("\n{}\n", kByLinkTitle) + line(link_heads(s, "->"));
  for (const LinkCells& cells : link_rows(s, kShownLinks, "->")) text += line(cells);
  if (s.by_link.size() > kShownLinks)
    text += fmt::format("  and {} more (--json lists all)\n", s.by_link.size() - kShownLinks);
  return text + "  No link: adding and copying in memory.\n";
}

std::string links(const Summary& s) {
  if (s.links.empty()) return {};
  std::string text = "\nLinks between hosts: a connection while it is busy\n";
  const SpeedUnit unit = unit_of_links(s);
  const auto speed = [&](double gbps) { return gbps > 0 ? unit.text(gbps) : "?"; };
  text += fmt::format("  {:>5}{:>16}{:>16}\n", "rank", fmt::format("sends, {}", unit.name),
                      fmt::format("receives, {}", unit.name));
  const std::vector<LinkSummary> sorted = slowest_first(s.links);
  for (size_t i = 0; i < std::min(sorted.size(), kShownLinks); ++i)
    text +=
        fmt::format("  {:>5}{:>16}{:>16}{}\n", sorted[i].rank, speed(sorted[i].out_gbps),
                    speed(sorted[i].in_gbps), sorted[i].is_slow_out || sorted[i].is_slow_in ? "  slow" : "");
  if (sorted.size() > kShownLinks) text += fmt::format("  and {} more\n", sorted.size() - kShownLinks);
  for (size_t i = 0; i < std::min(s.slow_pairs.size(), kShownLinks); ++i) {
    const SlowLink& pair = s.slow_pairs[i];
    text += fmt::format("  rank {} {} rank {}: {}  slow\n", pair.end, pair.receives ? "and" : "to",
                        pair.other, gbps_text(pair.speed));
  }
  return text;
}

std::string what_to_do(const Summary& s) {
  if (s.advice.empty()) return "\n" + no_advice_text() + "\n";
  std::string text = "\nWhat to do, most gain first\n";
  for (const Advice& advice : s.advice)
    text += fmt::format("  up to {:>5}  {}\n", percent_text(advice.gain), advice.text);
  return text;
}

}  // namespace

std::string as_text(const Summary& summary) {
  std::string text = head(summary);
  text += summary.steps == 0
              ? "\nNo step was finished on all ranks, so there is nothing to divide.\n" + transfers(summary)
              : shares(summary) + critical_path(summary) + ranks(summary) + transfers(summary) +
                    transfers_by_link(summary) + links(summary) + what_to_do(summary);
  return for_terminal(std::move(text));
}

}  // namespace rueda::timeline
