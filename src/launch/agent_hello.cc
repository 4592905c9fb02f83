#include "launch/agent_hello.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>

#include "rueda/base/unique_fd.h"

namespace rueda::launch {
namespace {

int find_free_port() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return 0;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.sin_port);
}

struct Addresses {
  std::string launcher, own;  // "" = unknown
};

// What ssh or srun says about the connection by which it has started this agent.
Addresses addresses_of_start() {
  const char* launch_node = getenv("SLURM_LAUNCH_NODE_IPADDR");
  const char* connection = getenv("SSH_CONNECTION");  // "client port server port"
  if (connection == nullptr) return {.launcher = launch_node != nullptr ? launch_node : "", .own = ""};
  std::istringstream words(connection);
  Addresses addresses;
  std::string port;
  words >> addresses.launcher >> port >> addresses.own;
  return addresses;
}

}  // namespace

Hello hello_of(const std::string& release, const std::string& private_dir,
               const std::optional<Joining>& joining) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const Addresses addresses =
      joining ? Addresses{joining->launcher_address, joining->own_address} : addresses_of_start();
  return {.release = release,
          .host = joining ? joining->name : name.data(),
          .pid = getpid(),
          .private_dir = private_dir,
          .free_port = find_free_port(),
          .launcher_address = addresses.launcher,
          .own_address = addresses.own,
          .slots = joining ? joining->slots : 0};
}

}  // namespace rueda::launch
