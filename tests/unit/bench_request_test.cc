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

TEST(Jobs, have_each_number_of_servers_and_each_placement_once) {
  Request request;
  request.what = "replay";
  request.ranks = {2, 8};
  request.transports = {"auto"};
  request.strategies = {"auto", "parameter-server"};
  request.servers = parse_servers("1:1,1:2,1:4", 2).value();
  request.placements = {"cut", "whole"};
  std::vector<std::string> found;
  for (const Job& job : jobs_of(request)) {
    const Job read = decode_job(encode(job)).value();
    found.push_back(
        std::to_string(read.ranks) + " " + read.strategy +
        (read.strategy == "auto" ? "" : " " + std::to_string(read.servers.of(read.ranks)) + read.placement));
  }
  const std::string servers = " parameter-server ";
  EXPECT_EQ(found, (std::vector<std::string>{"2 auto", "2" + servers + "2cut", "2" + servers + "2whole",
                                             "2" + servers + "1cut", "2" + servers + "1whole", "8 auto",
                                             "8" + servers + "8cut", "8" + servers + "8whole",
                                             "8" + servers + "4cut", "8" + servers + "4whole",
                                             "8" + servers + "2cut", "8" + servers + "2whole"}));
}

}  // namespace
}  // namespace rueda::bench::request_test
