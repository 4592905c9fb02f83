#include "rueda/store/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <ranges>

#include "rueda/store/socket.h"
#include "rueda/store/world.h"

namespace rueda::store {
namespace {

// Documentation addresses (RFC 5737, RFC 3849). Asking the kernel for a route to them sends nothing.
constexpr const char* kFarIpv4 = "192.0.2.1";
constexpr const char* kFarIpv6 = "2001:db8::1";

bool is_loopback_name(const std::string& host) {
  return host == "localhost" || host == "local" || host == "ip6-localhost";
}

std::string listing(const std::vector<LocalAddress>& addresses) {
  std::string text;
  for (const LocalAddress& address : addresses)
    text += (text.empty() ? "" : ", ") + address.interface + " (" + address.ip + ")";
  return text.empty() ? "none" : text;
}

// The address of the first of these interfaces or addresses, separated by commas, that this machine has.
Result<std::string> asked_for(const std::string& interfaces) {
  const std::vector<LocalAddress> addresses = local_addresses();
  for (const auto part : std::views::split(interfaces, ',')) {
    const std::string one(part.begin(), part.end());
    for (const LocalAddress& address : addresses)
      if (address.interface == one || address.ip == one) return address.ip;
    // Every 127.x.y.z belongs to this machine, although only one of them is listed.
    if (is_ip_literal(one) && one.starts_with("127.")) return one;
  }
  const bool is_list = interfaces.find(',') != std::string::npos;
  return Status(
      Code::kInvalidArgument,
      (is_list ? "none of the network interfaces or addresses '" : "network interface or address '") +
          interfaces + (is_list ? "' belongs" : "' does not belong") + " to this machine, which has " +
          listing(addresses) + " (RUEDA_INTERFACE)");
}

// The source address that the kernel would use. connect() on a datagram socket sends nothing.
Result<std::string> source_towards(const SocketAddress& peer) {
  const UniqueFd fd(socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() || connect(fd.get(), peer.get(), peer.size) != 0)
    return Status(Code::kUnavailable,
                  std::string("there is no route to ") + peer.ip() + ": " + std::strerror(errno));
  return own_address(fd.get()).ip();
}

std::string towards_the_network() {
  for (const char* far : {kFarIpv4, kFarIpv6}) {
    const auto peer = resolve(far, 9);
    if (!peer.is_ok()) continue;
    if (const auto source = source_towards(peer.value().front()); source.is_ok()) return source.value();
  }
  for (const LocalAddress& address : local_addresses())  // no default route, so take any network
    if (!address.is_loopback) return address.ip;
  return "127.0.0.1";
}

}  // namespace

std::vector<LocalAddress> local_addresses() {
  std::vector<LocalAddress> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    SocketAddress address;
    if (at->ifa_addr->sa_family == AF_INET) address.size = sizeof(sockaddr_in);
    if (at->ifa_addr->sa_family == AF_INET6) address.size = sizeof(sockaddr_in6);
    if (address.size == 0) continue;
    std::memcpy(&address.storage, at->ifa_addr, address.size);
    const std::string ip = address.ip();
    if (ip.starts_with("fe80:")) continue;  // a link-local address has no meaning without an interface
    addresses.push_back({at->ifa_name, ip, address.is_loopback()});
  }
  freeifaddrs(all);
  std::ranges::stable_sort(addresses, {},
                           [](const LocalAddress& a) { return a.ip.find(':') != std::string::npos; });
  return addresses;
}

Result<std::string> choose_address(const std::string& interface, const std::string& towards) {
  if (!interface.empty()) return asked_for(interface);
  if (is_loopback_name(towards)) return std::string("127.0.0.1");
  if (towards.empty()) return towards_the_network();
  const auto peers = resolve(towards, 9);
  if (!peers.is_ok()) return peers.status();
  Status last;
  for (const SocketAddress& peer : peers.value()) {
    if (peer.is_loopback() && is_ip_literal(towards))
      return std::string(peer.family() == AF_INET ? "127.0.0.1" : "::1");
    // A name that means loopback here stands for this machine, which its peers reach through the network.
    if (peer.is_loopback()) return towards_the_network();
    Result<std::string> source = source_towards(peer);
    if (source.is_ok()) return source;
    last = source.status();
  }
  return last;
}

Result<std::string> address_behind(const std::string& host, bool is_one_host) {
  if (is_loopback_name(host)) return std::string("127.0.0.1");
  const auto found = resolve(host, 9);
  if (!found.is_ok()) return found.status();
  const std::vector<LocalAddress> mine = local_addresses();
  for (const SocketAddress& address : found.value())
    for (const LocalAddress& local : mine)
      if (!address.is_loopback() && local.ip == address.ip()) return local.ip;
  const SocketAddress& first = found.value().front();
  if (first.is_loopback() && (is_ip_literal(host) || is_one_host)) return first.ip();
  return towards_the_network();
}

}  // namespace rueda::store
