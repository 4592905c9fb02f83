#include "bench/request.h"

#include <gtest/gtest.h>

namespace rueda::bench::request_test {
namespace {

std::string said(const std::string& why, const std::string& transport, std::vector<std::string> all) {
  return about_transport(Status(Code::kUnavailable, why), transport, all).why;
}

// Each in the words of the library, which does not know that bench has chosen the transport.
TEST(AboutTransport, names_the_option_where_the_library_names_the_setting) {
  EXPECT_EQ(said("cannot create 9 bytes of shared memory: Operation not permitted. Allow memfd_create in the "
                 "container's seccomp profile. Allow tcp with RUEDA_TRANSPORTS=shm,tcp.",
                 "shm", {"shm", "tcp"}),
            "cannot create 9 bytes of shared memory: Operation not permitted. Allow memfd_create in the "
            "container's seccomp profile. --transport measures each by itself, and shm cannot be used here; "
            "leave it out: --transport tcp.");
  EXPECT_EQ(
      said("no transport reaches rank 1 (host b, pid 101); allow tcp with RUEDA_TRANSPORTS=shm,tcp.", "shm",
           {"shm"}),
      "no transport reaches rank 1 (host b, pid 101). --transport measures each by itself, and shm cannot "
      "be used here; choose another: --transport tcp.");
  EXPECT_EQ(
      said("RUEDA_TRANSPORTS names ucx, but libucp.so.0 cannot be loaded; install UCX 1.13 or later on this "
           "host (Debian: libucx0), or remove ucx from RUEDA_TRANSPORTS.",
           "ucx", {"shm", "ucx", "tcp"}),
      "RUEDA_TRANSPORTS names ucx, but libucp.so.0 cannot be loaded; install UCX 1.13 or later on this host "
      "(Debian: libucx0). --transport measures each by itself, and ucx cannot be used here; leave it out: "
      "--transport shm,tcp.");
}

TEST(AboutTransport, leaves_other_failures_and_choices_of_the_library_alone) {
  const std::string other = "rank 1 did not come within 30 s; raise RUEDA_START_TIMEOUT.";
  EXPECT_EQ(said(other, "shm", {"shm", "tcp"}), other);
  const std::string setting = "cannot share. Allow tcp with RUEDA_TRANSPORTS=shm,tcp.";
  EXPECT_EQ(said(setting, "auto", {"auto"}), setting);
  EXPECT_EQ(
      said("RUEDA_TRANSPORTS is wrong", "tcp", {"tcp"}),
      "RUEDA_TRANSPORTS is wrong. --transport measures each by itself, and tcp cannot be used here; choose "
      "another: --transport auto.");
}

}  // namespace
}  // namespace rueda::bench::request_test
