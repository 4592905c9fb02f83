// The picture: one cell for each pair of hosts, coloured by its share of the usual rate. Written here, not by
// a plotting library, because the hosts of a job rarely have one, and rectangles are all it needs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "preflight/outcome.h"
#include "rueda/base/markup.h"

namespace rueda::preflight {
namespace {

constexpr int kTitle = 30, kMargin = 16, kLetter = 8;  // kLetter: of wide fonts, in bold
constexpr int kLegendSteps = 20, kLegendStep = 14, kLegendHeight = 48;
constexpr double kRise = 0.87, kReach = 0.5;  // of names above columns, which stand at 60 degrees
constexpr size_t kHostsWithNumbers = 20;      // in more cells there is no room for a number

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x20) append_escaped(out, c);  // XML allows no control characters
  }
  return out;
}

// Red only below what counts as slow; from there white to blue. People with any colour vision tell them
// apart. share: of the usual rate.
std::array<int, 3> colour(double share) {
  struct Stop {
    double at;
    std::array<double, 3> rgb;
  };
  constexpr std::array<Stop, 5> kStops = {{{0, {165, 0, 38}},
                                           {0.5, {244, 109, 67}},
                                           {kSlowShare, {253, 219, 199}},
                                           {kSlowShare, {247, 247, 247}},
                                           {1, {69, 117, 180}}}};
  const double x = std::clamp(share, 0.0, 1.0);
  size_t next = 1;
  while (next + 1 < kStops.size() && x >= kStops[next].at) ++next;
  const Stop &low = kStops[next - 1], &high = kStops[next];
  const double part = (x - low.at) / (high.at - low.at);
  const auto mixed = [&](size_t i) {
    return static_cast<int>(std::lround(low.rgb.at(i) + part * (high.rgb.at(i) - low.rgb.at(i))));
  };
  return {mixed(0), mixed(1), mixed(2)};
}

std::string hex(const std::array<int, 3>& rgb) {
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

// Black or white, whichever stands out more; at least by 4.5:1 (WCAG 2.1, relative luminance).
std::string_view ink_on(const std::array<int, 3>& rgb) {
  const auto linear = [&](size_t i) {
    const double c = rgb.at(i) / 255.0;
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(0) + 0.7152 * linear(1) + 0.0722 * linear(2) > 0.179 ? "#000" : "#fff";
}

struct Grid {
  int left, top, cell;
  double usual;   // one way, of pairs that nobody blames
  RateUnit unit;  // of all numbers
  [[nodiscard]] int x(int column) const { return left + cell * column; }
  [[nodiscard]] int y(int row) const { return top + cell * row; }
};

// Whether a finding names the link for its rate: it is slower than others of its hosts, or than demanded.
bool is_named(const PairMeasurement& pair, const Outcome& outcome) {
  return pair.gbit_per_s < outcome.least_gbit_per_s ||
         std::ranges::any_of(outcome.verdict.slow_links,
                             [&](const SlowLink& link) { return link.a == pair.a && link.b == pair.b; });
}

// What the colour stands for. What no finding blames is not red, so that picture and verdict agree; with two
// hosts that is all unless a rate is demanded. rate: one way.
double shown_share(const Grid& grid, const PairMeasurement& pair, const Outcome& outcome, double rate) {
  const auto is_slow_host = [&](int host) {
    return std::ranges::find(outcome.verdict.slow_hosts, host, &SlowHost::host) !=
           outcome.verdict.slow_hosts.end();
  };
  const double share = grid.usual > 0 ? rate / grid.usual : 0, least = outcome.least_gbit_per_s;
  if (pair.gbit_per_s < least && rate < least) return std::min(share, kSlowShare * rate / least);
  const bool may_be_red = is_named(pair, outcome) || is_slow_host(pair.a) || is_slow_host(pair.b);
  return may_be_red ? share : std::max(share, kSlowShare);
}

std::string cell(const Grid& grid, const PairMeasurement& pair, const Outcome& outcome, bool is_lower) {
  const auto& hosts = outcome.measured.hosts;
  const int row = is_lower ? pair.b : pair.a, column = is_lower ? pair.a : pair.b;
  const bool is_slow = is_named(pair, outcome);
  const double rate = one_way(pair, row);
  const std::array<int, 3> fill = colour(shown_share(grid, pair, outcome, rate));
  std::string text = fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"{}\" "
      "stroke-width=\"{}\"><title>{} to {}: "
      "{}; both ways at once {}{}</title></rect>\n",
      grid.x(column) + 1, grid.y(row) + 1, grid.cell - 2, grid.cell - 2, hex(fill), is_slow ? "#000" : "none",
      is_slow ? 2 : 0, escaped(hosts[static_cast<size_t>(row)].host),
      escaped(hosts[static_cast<size_t>(column)].host), gbit_text(rate), gbit_text(pair.gbit_per_s),
      pair.round_trip_us > 0 ? fmt::format(", round trip {:.0f} us", pair.round_trip_us) : "");
  if (hosts.size() <= kHostsWithNumbers)
    text += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\" fill=\"{}\" "
        "pointer-events=\"none\">{}</text>\n",
        grid.x(column) + grid.cell / 2, grid.y(row) + grid.cell / 2 + 4, ink_on(fill), grid.unit.text(rate));
  return text;
}

std::string labels(const Grid& grid, const Outcome& outcome) {
  std::string text;
  for (size_t i = 0; i < outcome.measured.hosts.size(); ++i) {
    const auto host = static_cast<int>(i);
    const bool is_slow = std::ranges::find(outcome.verdict.slow_hosts, host, &SlowHost::host) !=
                         outcome.verdict.slow_hosts.end();
    const std::string name = escaped(outcome.measured.hosts[i].host);
    const char* style = is_slow ? " font-weight=\"bold\" fill=\"#a50026\"" : "";
    text += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\"{}>{}</text>\n", grid.left - 6,
                        grid.y(host) + grid.cell / 2 + 4, style, name);
    text += fmt::format("<text transform=\"translate({} {}) rotate(-60)\"{}>{}</text>\n",
                        grid.x(host) + grid.cell / 2 + 4, grid.top - 6, style, name);
  }
  return text;
}

std::string tick(int x, int y, std::string_view anchor, std::string_view words) {
  return fmt::format(
      "<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"#000\"/>\n"
      "<text x=\"{0}\" y=\"{3}\" text-anchor=\"{4}\">{5}</text>\n",
      x, y, y + 16, y + 28, anchor, escaped(words));
}

std::string legend(const Grid& grid, int y) {
  std::string text;
  for (int i = 0; i < kLegendSteps; ++i)
    text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"12\" fill=\"{}\"/>\n",
                        kMargin + kLegendStep * i, y, kLegendStep, hex(colour((i + 0.5) / kLegendSteps)));
  const auto at = [](double share) {
    return kMargin + static_cast<int>(std::lround(kLegendStep * kLegendSteps * share));
  };
  return text + tick(at(0), y, "start", "0") +
         tick(at(kSlowShare), y, "middle", grid.unit.text(kSlowShare * grid.usual)) +
         tick(at(1), y, "middle", grid.unit.text(grid.usual)) +
         fmt::format("<text x=\"{}\" y=\"{}\">{}: red is slow, blue usual</text>\n", at(1) + 20, y + 10,
                     grid.unit.name);
}

}  // namespace

std::string heat_map(const Outcome& outcome) {
  const auto& hosts = outcome.measured.hosts;
  size_t longest = 4;
  for (const HostFacts& facts : hosts) longest = std::max(longest, facts.host.size());
  const auto count = static_cast<int>(hosts.size());
  const int name = kLetter * static_cast<int>(longest);
  const double usual = usual_one_way(outcome.verdict, outcome.measured.pairs);
  const Grid grid{.left = kMargin + name,
                  .top = kTitle + static_cast<int>(kRise * name) + kMargin,
                  .cell = hosts.size() <= kHostsWithNumbers ? 40
                          : hosts.size() <= 100             ? 14
                                                            : 6,
                  .usual = usual,
                  .unit = rate_unit(usual)};
  const int bottom = grid.y(count) + kMargin,
            width = std::max(grid.x(count) + static_cast<int>(kReach * name) + kMargin,
                             kMargin + kLegendStep * kLegendSteps + 260);
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"{2}\" y=\"16\" font-size=\"13\">rueda preflight: {3} from the host of a row to that of a "
      "column</text>\n",
      width, bottom + kLegendHeight, kMargin, grid.unit.name);
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j)
      text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#eee\"/>\n",
                          grid.x(j) + 1, grid.y(i) + 1, grid.cell - 2, grid.cell - 2);
  for (const PairMeasurement& pair : outcome.measured.pairs)
    for (const bool is_lower : {false, true}) text += cell(grid, pair, outcome, is_lower);
  return text + labels(grid, outcome) + legend(grid, bottom) + "</svg>\n";
}

}  // namespace rueda::preflight
