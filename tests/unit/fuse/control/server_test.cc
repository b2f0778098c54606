#include "fuse/control/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/error.h"
#include "fuse/control/client.h"

namespace elidefs::fuse {
namespace {

using ::testing::HasSubstr;

class ControlServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_), nullptr);
    path_ = absl::StrCat(folder_, "/run/0-1.sock");
    StartServer();
  }
  void StartServer() {
    absl::StatusOr<std::unique_ptr<ControlServer>> server =
        ControlServer::Start(path_, [this](std::string_view request) {
          if (request == "big") return std::string(100000, 'x');
          if (request == "fail") return std::string("error: no luck\n");
          if (request == "slow") slow_may_end_.WaitForNotification();
          return absl::StrCat("got ", std::string(request));
        });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    server_.reset();
    EXPECT_NE(access(path_.c_str(), F_OK), 0) << "the socket must be gone";
    rmdir(absl::StrCat(folder_, "/run").c_str());
    EXPECT_EQ(rmdir(folder_), 0);
  }

  // Sends bytes as they are and returns the answer.
  std::string Raw(std::string_view bytes) {
    absl::StatusOr<ControlClient> client = ControlClient::Connect(path_);
    EXPECT_TRUE(client.ok());
    EXPECT_TRUE(client->Send(bytes).ok());
    const absl::StatusOr<std::string> answer = client->ReadAll();
    return answer.ok() ? *answer : std::string(answer.status().message());
  }

  absl::Notification slow_may_end_;
  char folder_[32] = "/tmp/elidefs_test_XXXXXX";
  std::string path_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, Answers) {
  EXPECT_EQ(*ControlCall(path_, "stat"), "got stat");
  EXPECT_EQ(ControlCall(path_, "big")->size(), 100000U);
  EXPECT_EQ(ControlCall(path_, "fail").status().message(), "no luck");
}

TEST_F(ControlServerTest, OnlyTheOwnerMayConnect) {
  struct stat attributes = {};
  ASSERT_EQ(stat(path_.c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mode & 0777U, 0600U);
}

TEST_F(ControlServerTest, GarbageIsAnsweredWithAnError) {
  EXPECT_THAT(Raw(std::string(1000, 'a')), HasSubstr("error: no request line"));
  EXPECT_THAT(Raw(std::string(256, 'a')), HasSubstr("error: no request line"));
  EXPECT_EQ(Raw(std::string("\0\xff", 2)), absl::StrCat("got ", std::string("\0\xff", 2)));
  EXPECT_EQ(*ControlCall(path_, "stat"), "got stat");
}

TEST_F(ControlServerTest, ASlowAnswerKeepsNobodyWaiting) {
  absl::StatusOr<ControlClient> slow = ControlClient::Connect(path_);
  ASSERT_TRUE(slow.ok());
  ASSERT_TRUE(slow->Send("slow").ok());
  EXPECT_EQ(*ControlCall(path_, "stat"), "got stat");
  slow_may_end_.Notify();
  EXPECT_EQ(*slow->ReadAll(), "got slow");
}

TEST_F(ControlServerTest, ASilentClientDelaysOthersForTwoSecondsOnly) {
  absl::StatusOr<ControlClient> silent = ControlClient::Connect(path_);
  ASSERT_TRUE(silent.ok());
  EXPECT_EQ(*ControlCall(path_, "stat"), "got stat");
  EXPECT_THAT(*silent->ReadAll(), HasSubstr("error: no request line"));
}

TEST_F(ControlServerTest, WaitersGetTheResult) {
  absl::StatusOr<ControlClient> client = ControlClient::Connect(path_);
  ASSERT_TRUE(client.ok() && client->Send("wait").ok());
  EXPECT_EQ(*client->ReadLine(), "waiting");
  EXPECT_EQ(*client->ServerProcess(), getpid());
  EXPECT_EQ(*ControlCall(path_, "stat"), "got stat") << "a waiter must not block others";
  server_->StopServing();
  server_->Finish("closed\n");
  EXPECT_EQ(*client->ReadLine(), "closed");
  EXPECT_EQ(StatusToErrno(client->ReadLine().status()), ECONNRESET);
}

TEST_F(ControlServerTest, WaitersAreBounded) {
  std::vector<ControlClient> clients;
  for (size_t i = 0; i < kMaxControlWaiters; ++i) {
    clients.push_back(*ControlClient::Connect(path_));
    ASSERT_TRUE(clients.back().Send("wait").ok());
    ASSERT_EQ(*clients.back().ReadLine(), "waiting");
  }
  EXPECT_THAT(Raw("wait"), HasSubstr("error: too many"));
  clients.clear();  // those who left make room
  absl::StatusOr<ControlClient> client = ControlClient::Connect(path_);
  ASSERT_TRUE(client->Send("wait").ok());
  EXPECT_EQ(*client->ReadLine(), "waiting");
}

TEST_F(ControlServerTest, ReplacesAStaleSocket) {
  server_->StopServing();
  ASSERT_EQ(mknod(path_.c_str(), S_IFREG | 0600, 0), 0);
  StartServer();
  EXPECT_EQ(*ControlCall(path_, "stat"), "got stat");
}

TEST_F(ControlServerTest, NobodyListens) {
  EXPECT_EQ(StatusToErrno(ControlCall(path_ + "x", "stat").status()), ENOENT);
}

}  // namespace
}  // namespace elidefs::fuse
