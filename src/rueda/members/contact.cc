#include "rueda/members/contact.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <limits>

#include "rueda/base/process.h"
#include "rueda/base/sleep.h"
#include "rueda/base/unique_fd.h"
#include "rueda/store/job_id.h"

namespace rueda::members {
namespace {

constexpr Nanos kLookAgain = 5 * kMillisecond;

bool take_number(std::string_view& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

}  // namespace

std::string to_text(const Contact& contact) {
  std::string text;
  for (const int64_t number : {int64_t{contact.port}, contact.pid, contact.began, contact.pids})
    text += std::to_string(number) + " ";
  return text + contact.address;
}

Result<Contact> parse_contact(std::string_view text) {
  const Status malformed(Code::kPermissionDenied, "the contact of a member is malformed");
  std::array<int64_t, 4> numbers{};
  for (int64_t& number : numbers)
    if (!take_number(text, number)) return malformed;
  const auto [port, pid, began, space] = numbers;
  if (port < 1 || port > 65'535 || pid < 1 || text.empty() || text.find(' ') != std::string_view::npos)
    return malformed;
  return Contact{.address = std::string(text),
                 .port = static_cast<int>(port),
                 .pid = pid,
                 .began = began,
                 .pids = space};
}

int64_t pids_of_here() {
  const std::string boot = read_proc("/proc/sys/kernel/random/boot_id");
  if (boot.empty() || pid_space() == 0) return 0;
  const auto digest = store::digest_of("rueda pids", boot + std::to_string(pid_space()));
  int64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number & std::numeric_limits<int64_t>::max();
}

bool shares_pids(const Contact& contact) {
  static const int64_t here = pids_of_here();
  return contact.pids != 0 && contact.pids == here && contact.began != 0;
}

bool has_ended(const Contact& contact) {
  if (!shares_pids(contact)) return false;
  const ProcessLook look = look_at_process(contact.pid, 0);
  if (look.state == ProcessState::kUnknown)
    return kill(static_cast<pid_t>(contact.pid), 0) != 0 && errno == ESRCH;
  if (look.began != contact.began) return true;  // another process has its pid by now
  return look.state == ProcessState::kEnded &&
         look.threads <= 1;  // its first thread counts until it is reaped
}

bool is_at_work(const Contact& contact) {
  if (!shares_pids(contact)) return false;
  const ProcessState state = look_at_process(contact.pid, contact.began).state;
  return state == ProcessState::kRuns || state == ProcessState::kTraced;
}

Status end_process(const Contact& contact, Nanos at_most) {
  const Deadline deadline = Deadline::after(at_most);
  const std::string who = "process " + std::to_string(contact.pid) + " of this host";
  if (!shares_pids(contact))
    return {Code::kUnavailable, who +
                                    " cannot be seen from here (another container, or another machine of the "
                                    "same name), so it is not certain that it has ended"};
  if (has_ended(contact)) return Status::ok();
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(contact.pid), 0)));
  // The descriptor holds the process, so that what is seen now is what is ended below.
  if (process.is_open() && look_at_process(contact.pid, contact.began).state != ProcessState::kUnknown)
    syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  while (!has_ended(contact)) {
    if (deadline.is_past()) return {Code::kUnavailable, who + " does not end, although it was killed"};
    sleep_for(kLookAgain);
  }
  return Status::ok();
}

}  // namespace rueda::members
