#include "rueda/members/contact.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "rueda/base/process.h"
#include "rueda/members/member_store.h"

namespace rueda::members::contact_test {
namespace {

TEST(Contact, text_brings_it_back_and_other_text_is_refused) {
  const Contact contact{.address = "fd00::1", .port = 4711, .pid = 7, .began = 8, .pids = 9};
  EXPECT_EQ(parse_contact(to_text(contact)).value(), contact);
  for (const char* text : {"", "4711", "4711 7 8 9", "4711 7 8 9 ", "0 7 8 9 a", "65536 7 8 9 a",
                           "4711 0 8 9 a", "4711 -1 8 9 a", "4711 7 8 9 a b"})
    EXPECT_FALSE(parse_contact(text).is_ok()) << text;
}

TEST(LeaveAt, text_brings_it_back_and_other_text_is_refused) {
  const LeaveAt order{.view = 2, .commit = 17};
  EXPECT_EQ(parse_leave_at(to_text(order)).value(), order);
  for (const char* text : {"", "2", "2 ", "2 x", "2 17 ", "0 17", "2 -1", " 2 17"})
    EXPECT_FALSE(parse_leave_at(text).is_ok()) << text;
}

Contact contact_of(pid_t pid) {
  return {.address = "127.0.0.1",
          .port = 1,
          .pid = pid,
          .began = look_at_process(pid, 0).began,
          .pids = pids_of_here()};
}

TEST(Contact, a_stopped_process_is_ended_and_then_has_ended) {
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  const Contact contact = contact_of(child);
  EXPECT_FALSE(has_ended(contact));
  EXPECT_FALSE(is_at_work(contact));
  EXPECT_TRUE(end_process(contact, 10 * kSecond).is_ok()) << "also before anybody has waited for it";
  EXPECT_TRUE(has_ended(contact));
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(WTERMSIG(how), SIGKILL);
  EXPECT_TRUE(has_ended(contact));
}

TEST(Contact, another_process_with_its_pid_is_left_alone) {
  Contact contact = contact_of(getpid());
  EXPECT_FALSE(has_ended(contact));
  contact.began -= 1;
  EXPECT_TRUE(has_ended(contact));
  EXPECT_TRUE(end_process(contact, kSecond).is_ok()) << "and this process lives";
}

TEST(Contact, a_process_of_another_container_is_not_ended) {
  Contact contact = contact_of(getpid());
  contact.pids ^= 1;
  EXPECT_FALSE(shares_pids(contact));
  EXPECT_FALSE(has_ended(contact));
  EXPECT_FALSE(end_process(contact, kSecond).is_ok());
}

}  // namespace
}  // namespace rueda::members::contact_test
