// PMI-1: lines of key=value pairs, separated by spaces, over a socket that the process manager left open
// (PMI_FD) or to which we connect (PMI_PORT). The space can be used only once, so MPI_Init fails after it:
// initialise MPI first, or tell rueda with RUEDA_STORE where to meet.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <map>

#include "rueda/base/descriptors.h"
#include "rueda/store/launcher_space.h"
#include "rueda/store/socket.h"
#include "rueda/store/store_url.h"

namespace rueda::store {
namespace {

constexpr size_t kMaxLineBytes = 4'096;  // longer than any reply to our requests

using Fields = std::map<std::string, std::string>;

Fields fields_of(const std::string& line) {
  Fields fields;
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    const std::string word = line.substr(begin, end - begin);
    if (const size_t equals = word.find('='); equals != std::string::npos)
      fields[word.substr(0, equals)] = word.substr(equals + 1);
    begin = end + 1;
  }
  return fields;
}

Rank number_of(const std::string& text) {
  Rank value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size() ? value : -1;
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

class PmiSpace final : public LauncherSpace {
 public:
  // is_shared: the use of the space began before us and goes on after us. Otherwise finish() ends it.
  PmiSpace(UniqueFd fd, bool is_shared) : fd_(std::move(fd)), is_shared_(is_shared) {}

  Status begin(const std::string& pmi_id, Deadline deadline) {
    if (!pmi_id.empty()) {
      if (Status status = send_id(pmi_id, deadline); !status.is_ok()) return status;
    }
    if (!is_shared_) {
      const Result<Fields> init =
          ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
      if (!init.is_ok()) return init.status();
    }
    const Result<Fields> space = ask("cmd=get_my_kvsname", "my_kvsname", deadline);
    if (!space.is_ok()) return space.status();
    name_ = space.value().at("kvsname");
    facts_.job = name_;
    if (pmi_id.empty()) {
      facts_.rank = number_of(variable("PMI_RANK"));
      facts_.size = number_of(variable("PMI_SIZE"));
    }
    return Status::ok();
  }

  [[nodiscard]] const LauncherFacts& facts() const override { return facts_; }

  Status put(const std::string& key, const std::string& value, Deadline deadline) override {
    return ask("cmd=put kvsname=" + name_ + " key=" + key + " value=" + value, "put_result", deadline)
        .status();
  }

  Status fence(Deadline deadline) override { return ask("cmd=barrier_in", "barrier_out", deadline).status(); }

  Result<std::string> get(const std::string& key, Rank, Deadline deadline) override {
    const Result<Fields> reply = ask("cmd=get kvsname=" + name_ + " key=" + key, "get_result", deadline);
    if (!reply.is_ok()) return reply.status();
    const auto value = reply.value().find("value");
    if (value == reply.value().end()) return fault("key '" + key + "' is missing");
    return value->second;
  }

  Status finish(Deadline deadline) override {
    const Status status = is_shared_ ? Status::ok() : ask("cmd=finalize", "finalize_ack", deadline).status();
    fd_.reset();
    return status;
  }

 private:
  static Status fault(const std::string& why) {
    return {Code::kUnavailable, "the process manager's PMI space failed: " + why + kSpaceAdvice};
  }

  // The answers are lines "set size", "set rank" and "set debug".
  Status send_id(const std::string& pmi_id, Deadline deadline) {
    Result<Fields> reply = ask("cmd=initack pmiid=" + pmi_id, "initack", deadline);
    for (int lines = 0; reply.is_ok() && lines < 16; ++lines) {
      if (facts_.rank >= 0 && facts_.size >= 0 && reply.value().contains("debug")) return Status::ok();
      reply = read_reply("set", deadline);
      if (!reply.is_ok()) break;
      if (reply.value().contains("size")) facts_.size = number_of(reply.value().at("size"));
      if (reply.value().contains("rank")) facts_.rank = number_of(reply.value().at("rank"));
    }
    return reply.is_ok() ? fault("it did not give rank and size") : reply.status();
  }

  Result<Fields> ask(const std::string& request, const std::string& expected, Deadline deadline) {
    const std::string line = request + "\n";
    if (Status status = send_all(fd_.get(), std::as_bytes(std::span(line)), deadline); !status.is_ok())
      return named(status, request);
    Result<Fields> reply = read_reply(expected, deadline);
    return reply.is_ok() ? reply : named(reply.status(), request);
  }

  static Status named(const Status& status, const std::string& request) {
    const std::string what =
        request.substr(0, request.find(" kvsname"));  // without values, because one is the secret
    if (status.code == Code::kTimeout)
      return {Code::kTimeout,
              "the process manager did not answer '" + what + "' in time; a rank is late or has ended"};
    return fault("'" + what + "': " + status.why);
  }

  Result<Fields> read_reply(const std::string& expected, Deadline deadline) {
    while (true) {
      if (const size_t end = pending_.find('\n'); end != std::string::npos) {
        Fields fields = fields_of(pending_.substr(0, end));
        pending_.erase(0, end + 1);
        if (fields["cmd"] != expected)
          return Status(Code::kUnavailable, "unexpected reply '" + fields["cmd"] + "'");
        if (fields.contains("rc") && fields["rc"] != "0")
          return Status(Code::kUnavailable, "rc=" + fields["rc"]);
        if (expected == "my_kvsname" && !fields.contains("kvsname"))
          return Status(Code::kUnavailable, "it did not give its name");
        return fields;
      }
      if (pending_.size() > kMaxLineBytes) return Status(Code::kUnavailable, "a line is too long");
      std::byte buffer[512];
      const Result<size_t> got = receive_some(fd_.get(), buffer, deadline);
      if (!got.is_ok()) return got.status();
      pending_.append(reinterpret_cast<const char*>(buffer), got.value());
    }
  }

  UniqueFd fd_;
  bool is_shared_;
  std::string pending_;
  std::string name_;
  LauncherFacts facts_;
};

Result<UniqueFd> dial_port(const std::string& port, Deadline deadline) {
  const Result<StoreUrl> where = parse_store_url("tcp://" + port);
  if (!where.is_ok()) return Status(Code::kInvalidArgument, "PMI_PORT='" + port + "' is not HOST:PORT");
  const auto addresses = resolve(where.value().host, where.value().port);
  if (!addresses.is_ok()) return addresses.status();
  return connect_to(addresses.value().front(), deadline);
}

// A process manager leaves one end of a socketpair() open. A program between it and the rank may have closed
// that, as Python's subprocess does, and then the number belongs to whatever was opened next.
bool is_of_process_manager(int fd) {
  sockaddr_un peer{};
  socklen_t size = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sun_family == AF_UNIX &&
         size == sizeof(peer.sun_family);
}

// MPI keeps its own descriptor of the connection.
Result<UniqueFd> take_inherited(int fd, bool is_shared) {
  if (!is_of_process_manager(fd))
    return Status(
        Code::kUnavailable,
        "PMI_FD=" + std::to_string(fd) +
            " is no connection to a process manager: a program that mpiexec started has closed it "
            "and then started this one; have mpiexec start this program itself, or set RUEDA_STORE");
  if (!is_shared) return UniqueFd(fd);
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.is_open()) return out_of_descriptors(errno);
  return copy;
}

}  // namespace

Result<std::unique_ptr<LauncherSpace>> open_pmi_space(Deadline deadline, bool is_shared) {
  const std::string fd_text = variable("PMI_FD"), port = variable("PMI_PORT");
  Result<UniqueFd> fd = Status(Code::kUnavailable, "neither PMI_FD nor PMI_PORT is set");
  if (!fd_text.empty())
    fd = take_inherited(number_of(fd_text), is_shared);
  else if (!port.empty())
    fd = dial_port(port, deadline);
  if (!fd.is_ok()) return fd.status();
  auto space = std::make_unique<PmiSpace>(std::move(fd).value(), is_shared && !fd_text.empty());
  if (Status status = space->begin(fd_text.empty() ? variable("PMI_ID") : "", deadline); !status.is_ok())
    return status;
  return std::unique_ptr<LauncherSpace>(std::move(space));
}

}  // namespace rueda::store
