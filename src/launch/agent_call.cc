#include "launch/agent_call.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "launch/agent_door.h"
#include "rueda/base/release.h"
#include "rueda/base/sleep.h"
#include "rueda/store/socket.h"

namespace rueda::launch {
namespace {

constexpr Nanos kTryPause = 500 * kMillisecond;
constexpr Nanos kTry = 5 * kSecond;
constexpr Nanos kShakeTime = 10 * kSecond;

struct HostPort {
  std::string host;
  int port = 0;
};

Result<HostPort> parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "tcp://";
  const std::string rest = url.starts_with(kScheme) ? url.substr(kScheme.size()) : url;
  const size_t colon = rest.rfind(':');
  HostPort target;
  if (colon != std::string::npos) {
    target.host = rest.substr(0, colon);
    if (target.host.starts_with('[') && target.host.ends_with(']'))
      target.host = target.host.substr(1, target.host.size() - 2);
    const auto [end, error] =
        std::from_chars(rest.data() + colon + 1, rest.data() + rest.size(), target.port);
    if (error == std::errc() && end == rest.data() + rest.size() && target.port > 0 &&
        target.port <= 65'535 && !target.host.empty())
      return target;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("--join {} is refused: give what rueda run --accept-agents prints, such as "
                            "tcp://10.0.0.1:5000",
                            url));
}

Result<UniqueFd> connect_once(const HostPort& target, Deadline deadline) {
  const auto addresses = store::resolve(target.host, target.port);
  if (!addresses.is_ok()) return addresses.status();
  Result<UniqueFd> fd = Status(Code::kUnavailable, "it has no address");
  for (const SocketAddress& address : addresses.value()) {
    fd = store::connect_to(address, deadline);
    if (fd.is_ok()) return fd;
  }
  return fd;
}

// What a refused agent is to do about it.
Status explain(const Handshake& handshake, const std::string& url, const Status& why) {
  switch (handshake.outcome()) {
    case HandshakeOutcome::kWrongSecret:
      return {why.code, fmt::format("{} refused this agent: its secret is another one; give the file that "
                                    "rueda run --accept-agents names",
                                    url)};
    case HandshakeOutcome::kWrongJob:
    case HandshakeOutcome::kWrongConnectionKind:
      return {why.code,
              fmt::format("{} accepts no agents; an elastic job does, with rueda run --accept-agents", url)};
    default:
      return {why.code, fmt::format("cannot join {}: {}", url, why.why)};
  }
}

Status shake_hands(int fd, Handshake& handshake) {
  const Deadline deadline = Deadline::after(kShakeTime);
  while (true) {
    if (Status sent = store::send_all(fd, handshake.take_output(), deadline); !sent.is_ok()) return sent;
    if (handshake.is_done()) return Status::ok();
    std::array<std::byte, kMaxHandshakeBytes> chunk;
    const Result<size_t> size = store::receive_some(fd, chunk, deadline);
    if (!size.is_ok()) return size.status();
    const Result<size_t> taken = handshake.feed(std::span<const std::byte>(chunk).first(size.value()));
    if (!taken.is_ok()) {
      (void)store::send_all(fd, handshake.take_output(), deadline);
      return taken.status();
    }
  }
}

}  // namespace

Result<UniqueFd> call_launcher(const std::string& url, const Secret& secret, Deadline deadline,
                               const std::function<void(const std::string&)>& say) {
  const Result<HostPort> target = parse_url(url);
  if (!target.is_ok()) return target.status();
  bool has_told = false;
  while (true) {
    Result<UniqueFd> fd =
        connect_once(target.value(), Deadline::at(std::min(deadline.when(), monotonic_now() + kTry)));
    if (fd.is_ok()) {
      Handshake handshake = Handshake::client(secret, joining_identity(), kRelease);
      const Status shaken = shake_hands(fd.value().get(), handshake);
      if (!shaken.is_ok()) return explain(handshake, url, shaken);
      return fd;
    }
    if (deadline.is_past())
      return Status(Code::kTimeout, fmt::format("cannot join {}: {}; is the job running, and does it accept "
                                                "agents?",
                                                url, fd.status().why));
    if (!std::exchange(has_told, true)) say(fmt::format("waiting for {}: {}", url, fd.status().why));
    sleep_for(kTryPause);
  }
}

}  // namespace rueda::launch
