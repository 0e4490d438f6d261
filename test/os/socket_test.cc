// Sockets, events and waiting: streams that never block, files of mode 0600, and files that other
// processes left.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

extern "C" {
#include "os/file.h"
#include "os/process.h"
}

namespace socket_test
{

std::string path_of(const std::string &name)
{
    return "/tmp/cairn-socket-" + std::to_string(getpid()) + "-" + name;
}

int connect_to(const std::string &path)
{
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(file, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0)
        return file;
    close(file);
    return -1;
}

bool is_ready(int file, bool writes = false, unsigned timeout_ms = 0)
{
    os_wait entry = {file, !writes, writes, false};
    os_wait_for(&entry, 1, timeout_ms);
    return entry.ready;
}

TEST(Socket, WordsGoBothWays)
{
    const std::string path = path_of("both");
    errno = 4321;
    const int listener = os_socket_listen(path.c_str());
    ASSERT_GE(listener, 0);
    struct stat status;
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777u, 0600u);
    EXPECT_EQ(os_socket_accept(listener), -EAGAIN);
    EXPECT_FALSE(is_ready(listener));
    const int client = connect_to(path);
    ASSERT_GE(client, 0);
    EXPECT_TRUE(is_ready(listener, false, 1000));
    const int server = os_socket_accept(listener);
    ASSERT_GE(server, 0);
    char text[16];
    EXPECT_EQ(os_socket_receive(server, text, sizeof text), -EAGAIN);
    EXPECT_TRUE(is_ready(server, true));
    ASSERT_EQ(write(client, "ask", 3), 3);
    EXPECT_EQ(os_socket_receive(server, text, sizeof text), 3);
    EXPECT_EQ(os_socket_send(server, "answer", 6), 6);
    EXPECT_EQ(read(client, text, sizeof text), 6);
    close(client);
    EXPECT_EQ(os_socket_receive(server, text, sizeof text), 0);
    EXPECT_EQ(os_socket_send(server, "more", 4), -EPIPE) << "without a signal";
    os_file_close(server);
    os_file_close(listener);
    unlink(path.c_str());
}

TEST(Socket, AFullStreamDoesNotBlock)
{
    const std::string path = path_of("full");
    const int listener = os_socket_listen(path.c_str());
    const int client = connect_to(path);
    const int server = os_socket_accept(listener);
    ASSERT_GE(server, 0);
    static char much[1 << 20];
    int sent = 0;
    while (sent >= 0)
        sent = os_socket_send(server, much, sizeof much);
    EXPECT_EQ(sent, -EAGAIN);
    EXPECT_FALSE(is_ready(server, true));
    close(client);
    os_file_close(server);
    os_file_close(listener);
    unlink(path.c_str());
}

TEST(Socket, WhatAKilledProcessLeftIsReplacedAndNothingElse)
{
    const std::string path = path_of("left");
    const int first = os_socket_listen(path.c_str());
    ASSERT_GE(first, 0);
    EXPECT_EQ(os_socket_listen(path.c_str()), -EADDRINUSE) << "another process serves the socket";
    os_file_close(first);
    const int second = os_socket_listen(path.c_str());
    EXPECT_GE(second, 0) << "no process serves the socket any more";
    os_file_close(second);
    unlink(path.c_str());
    FILE *file = fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    fclose(file);
    EXPECT_EQ(os_socket_listen(path.c_str()), -EADDRINUSE) << "the file is not a socket";
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
    unlink(path.c_str());
    EXPECT_EQ(os_socket_listen("/nowhere/at/all"), -ENOENT);
    EXPECT_EQ(os_socket_listen(("/tmp/" + std::string(200, 'x')).c_str()), -ENAMETOOLONG);
}

TEST(Socket, AnotherUserIsNotAnswered)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can be another user";
    const std::string path = path_of("other");
    const int listener = os_socket_listen(path.c_str());
    ASSERT_GE(listener, 0);
    ASSERT_EQ(chmod(path.c_str(), 0666), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (setuid(65534) != 0)
            _exit(2);
        _exit(connect_to(path) >= 0 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(os_socket_accept(listener), -EPERM);
    os_file_close(listener);
    unlink(path.c_str());
}

TEST(Socket, AnEventWakesWhoWaits)
{
    const int event = os_event_make();
    ASSERT_GE(event, 0);
    const uint64_t before = os_now_us();
    EXPECT_FALSE(is_ready(event, false, 20));
    EXPECT_GE(os_now_us() - before, 20000u);
    os_event_set(event);
    os_event_set(event);
    EXPECT_TRUE(is_ready(event, false, 60000));
    os_event_clear(event);
    EXPECT_FALSE(is_ready(event));
    os_event_clear(event); // does not wait
    os_file_close(event);
}

// A program may have reused the number of an event's descriptor.
TEST(Socket, AnEventLeavesOtherFilesAlone)
{
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
    ASSERT_EQ(write(ends[1], "data", 4), 4);
    os_event_clear(ends[0]);
    os_event_set(ends[1]);
    char read_back[8];
    EXPECT_EQ(read(ends[0], read_back, sizeof read_back), 4);
    close(ends[0]);
    close(ends[1]);
}

} // namespace socket_test
