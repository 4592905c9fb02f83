#include "rueda/status/scrape.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <span>

#include "rueda/base/handshake.h"

namespace rueda::status {
namespace {

bool is_equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Takes one line from the text, without its end. Nothing: no line is left.
std::optional<std::string_view> take_line(std::string_view& text) {
  const size_t end = text.find("\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 2);
  return line;
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

struct RequestLine {
  std::string_view method, target;
};

std::optional<RequestLine> parse_request_line(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (first == 0 || second == std::string_view::npos || second == first + 1) return std::nullopt;
  const std::string_view version = line.substr(second + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return std::nullopt;
  return RequestLine{line.substr(0, first), line.substr(first + 1, second - first - 1)};
}

// What follows "Bearer " in the field Authorization; empty for another scheme.
std::string_view bearer_of(std::string_view value) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!is_equal_ignoring_case(value.substr(0, kScheme.size()), kScheme)) return {};
  return without_blanks(value.substr(kScheme.size()));
}

struct Answer {
  int status;
  std::string_view reason, sentence;  // the sentence is the body; the metrics are that of 200
};

constexpr std::array<Answer, 6> kAnswers = {{
    {200, "OK", ""},
    {400, "Bad Request", "This is not a request of HTTP/1.1.\n"},
    {401, "Unauthorized", "Show the token of the job: \"Authorization: Bearer TOKEN\" (docs/metrics.md).\n"},
    {404, "Not Found", "The metrics are at /metrics.\n"},
    {405, "Method Not Allowed", "Metrics can only be read: use GET.\n"},
    {431, "Request Header Fields Too Large", "The head of a request has at most 8192 bytes.\n"},
}};

const Answer& answer_of(int status) {
  const auto found = std::ranges::find(kAnswers, status, &Answer::status);
  return found == kAnswers.end() ? kAnswers.back() : *found;
}

}  // namespace

bool has_whole_head(std::string_view arrived) { return arrived.find("\r\n\r\n") != std::string_view::npos; }

int verdict_on(std::string_view head, std::string_view token) {
  const std::optional<std::string_view> first = take_line(head);
  const std::optional<RequestLine> request = first ? parse_request_line(*first) : std::nullopt;
  if (!request) return 400;
  std::optional<std::string_view> shown;
  for (auto line = take_line(head); line && !line->empty(); line = take_line(head)) {
    const size_t colon = line->find(':');
    if (colon == std::string_view::npos || colon == 0) return 400;
    if (!is_equal_ignoring_case(line->substr(0, colon), "authorization")) continue;
    if (shown) return 400;
    shown = bearer_of(without_blanks(line->substr(colon + 1)));
  }
  const auto bytes_of = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  if (token.empty() || !shown || !is_same_secret(bytes_of(*shown), bytes_of(token))) return 401;
  if (request->method != "GET") return 405;
  return request->target.substr(0, request->target.find('?')) == kMetricsPath ? 200 : 404;
}

std::string http_response(int status, std::string_view body) {
  const Answer& answer = answer_of(status);
  if (status != 200) body = answer.sentence;
  std::string text = "HTTP/1.1 " + std::to_string(status) + " ";
  text.append(answer.reason);
  // The format of Prometheus has a version, by which it knows how to read the body.
  text += "\r\nContent-Type: text/plain; ";
  text += status == 200 ? "version=0.0.4; charset=utf-8" : "charset=utf-8";
  text += "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n";
  if (status == 401) text += "WWW-Authenticate: Bearer\r\n";
  if (status == 405) text += "Allow: GET\r\n";
  text += "\r\n";
  return text.append(body);
}

}  // namespace rueda::status
