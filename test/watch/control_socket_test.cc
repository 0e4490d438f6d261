// The socket as clients see it: lines and answers; clients that stall, flood, or send malformed
// data. The thread of the test serves.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"
#include "watch/control_socket.h"
}

namespace control_socket_test
{

std::atomic<size_t> answered{0};
std::atomic<unsigned> takes_ms{0};

// The answer to "big" fills the buffers of the socket; any other line is echoed.
size_t answer(const char *request, char *text, size_t capacity)
{
    answered++;
    if (takes_ms != 0)
        os_sleep_ms(takes_ms);
    const size_t length = strcmp(request, "big") == 0 ? capacity - 1 : strlen(request);
    memset(text, 'b', length);
    if (strcmp(request, "big") != 0)
        memcpy(text, request, length);
    return length;
}

void expect_success(pid_t child)
{
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

class ControlSocket : public testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        os_init();
        const std::string path = "/tmp/cairn-control-%p";
        ASSERT_FALSE(control_configure("relative", 8, answer));
        ASSERT_FALSE(control_configure(path.c_str(), 0, answer));
        ASSERT_FALSE(control_is_wanted());
        ASSERT_TRUE(control_configure(path.c_str(), path.size(), answer));
        ASSERT_TRUE(control_is_wanted());
    }

    void SetUp() override
    {
        path_ = "/tmp/cairn-control-" + std::to_string(getpid());
        takes_ms = 0;
        event_ = os_event_make();
        ASSERT_GE(event_, 0);
        ASSERT_EQ(control_open(), 0);
        server_ = std::thread([this] { control_serve(UINT64_MAX, event_); });
    }

    void TearDown() override
    {
        for (const int client : clients_)
            close(client);
        os_event_set(event_);
        server_.join();
        os_file_close(event_);
        control_close();
        EXPECT_NE(access(path_.c_str(), F_OK), 0) << "the file is removed with the socket";
    }

    int connect_client()
    {
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
        const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(connect(file, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
        clients_.push_back(file);
        return file;
    }

    static void say(int client, const std::string &text)
    {
        EXPECT_EQ(send(client, text.data(), text.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(text.size()));
    }

    // Reads a line, or the bytes before the end of the connection and "(end)".
    static std::string hear(int client, int timeout_ms = 30000)
    {
        std::string line;
        for (char byte = 0;;) {
            pollfd entry = {client, POLLIN, 0};
            if (poll(&entry, 1, timeout_ms) != 1)
                return line + "(silence)";
            if (recv(client, &byte, 1, 0) <= 0)
                return line + "(end)";
            if (byte == '\n')
                return line;
            line += byte;
        }
    }

    std::string path_;
    int event_ = -1;
    std::thread server_;
    std::vector<int> clients_;
};

TEST_F(ControlSocket, LinesAreAnsweredInTheirOrder)
{
    const int client = connect_client();
    say(client, "first\nsecond\nth");
    EXPECT_EQ(hear(client), "first");
    EXPECT_EQ(hear(client), "second");
    say(client, "ird\n");
    EXPECT_EQ(hear(client), "third");
    say(client, std::string(512, 'x') + "\n");
    EXPECT_EQ(hear(client), std::string(512, 'x'));
    say(client, "\n");
    EXPECT_EQ(hear(client), "");
}

TEST_F(ControlSocket, ALineThatIsTooLongEndsTheConnection)
{
    const int client = connect_client();
    say(client, std::string(600, 'x'));
    EXPECT_GT(hear(client).size(), 512u) << "the handler decides that the line is too long";
    EXPECT_EQ(hear(client).find_first_not_of("x"), std::string("(end)").find('('));
}

TEST_F(ControlSocket, SeveralClientsAndALeavingOne)
{
    const int first = connect_client();
    const int second = connect_client();
    say(first, "one\n");
    say(second, "two\n");
    EXPECT_EQ(hear(second), "two");
    EXPECT_EQ(hear(first), "one");
    shutdown(first, SHUT_RDWR);
    say(second, "three\n");
    EXPECT_EQ(hear(second), "three");
}

TEST_F(ControlSocket, TheNinthTakesThePlaceOfTheOneSilentLongest)
{
    std::vector<int> clients;
    for (int i = 0; i < CONTROL_CLIENTS; i++) {
        clients.push_back(connect_client());
        say(clients.back(), "hello\n");
        EXPECT_EQ(hear(clients.back()), "hello");
        os_sleep_ms(20); // the clock is coarse
    }
    const int ninth = connect_client();
    say(ninth, "here\n");
    EXPECT_EQ(hear(ninth), "here");
    EXPECT_EQ(hear(clients[0]), "(end)");
    say(clients[7], "still\n");
    EXPECT_EQ(hear(clients[7]), "still");
}

TEST_F(ControlSocket, AClientThatTakesNothingDoesNotStopTheOthers)
{
    const int stalled = connect_client();
    const int small = 4096;
    (void)setsockopt(stalled, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 20; i++)
        say(stalled, "big\n");
    const int other = connect_client();
    for (int i = 0; i < 10; i++) {
        say(other, "still here\n");
        EXPECT_EQ(hear(other), "still here");
    }
    EXPECT_EQ(hear(stalled).size(), size_t{CONTROL_ANSWER_BYTES} - 2)
        << "an answer arrives complete";
}

TEST_F(ControlSocket, AFloodGetsAFifthOfAProcessor)
{
    takes_ms = 10;
    const int client = connect_client();
    std::string flood;
    for (int i = 0; i < 100; i++)
        flood += "x\n";
    const uint64_t start_us = os_now_us();
    const size_t before = answered;
    say(client, flood);
    for (int i = 0; i < 10; i++)
        EXPECT_EQ(hear(client), "x");
    const size_t count = answered - before; // first: the server continues while this thread waits
    const uint64_t elapsed_ms = (os_now_us() - start_us) / 1000;
    EXPECT_GE(elapsed_ms, 9u * 5 * 10) << "each client rests four times its processing time";
    EXPECT_LE(count, elapsed_ms / 50 + 2);
}

// The answer and its rest together last longer than CONTROL_STALL_MS.
TEST_F(ControlSocket, ARestOfTheServerEndsNoConnection)
{
    takes_ms = 1100;
    const int client = connect_client();
    say(client, "first\nsecond\n");
    EXPECT_EQ(hear(client), "first");
    takes_ms = 0;
    EXPECT_EQ(hear(client), "second");
}

TEST_F(ControlSocket, AnyBytes)
{
    const int client = connect_client();
    for (int i = 0; i < 256; i++)
        if (i != '\n')
            (void)send(client, std::string(3, static_cast<char>(i)).data(), 3,
                       MSG_NOSIGNAL); // the connection may have ended
    EXPECT_NE(hear(client), "(silence)");
    const int other = connect_client();
    say(other, "good\n");
    EXPECT_EQ(hear(other), "good");
}

// When a thread forks, another thread of the parent may not have opened the socket yet.
TEST_F(ControlSocket, AChildSaysNothingOfWhatItsParentHasSince)
{
    const pid_t child = fork();
    if (child == 0) {
        control_close();
        control_configure(path_.c_str(), path_.size(), answer);
        bool well = true;
        for (const bool served : {false, true}) {
            control_forget(served);
            testing::internal::CaptureStderr();
            well = well && control_open() == -EADDRINUSE;
            well = well && testing::internal::GetCapturedStderr().empty() == served;
        }
        _exit(well ? 0 : 1);
    }
    expect_success(child);
    EXPECT_EQ(access(path_.c_str(), F_OK), 0);
}

// The thread that opens the socket still runs while the process ends.
TEST_F(ControlSocket, NoneIsOpenedOnceTheProcessEnds)
{
    const std::string path = path_ + ".child";
    const pid_t child = fork();
    if (child == 0) {
        control_forget(false);
        control_configure(path.c_str(), path.size(), answer);
        control_remove();
        _exit(control_open() == -EBUSY ? 0 : 1);
    }
    expect_success(child);
    EXPECT_NE(unlink(path.c_str()), 0) << "no process is left that would remove the file";
}

// Two processes that find a socket without a server may replace it one after the other.
TEST_F(ControlSocket, AFileThatAnotherProcessHasReplacedStays)
{
    const std::string path = path_ + ".child";
    const pid_t child = fork();
    if (child == 0) {
        control_forget(false);
        control_configure(path.c_str(), path.size(), answer);
        if (control_open() != 0 || rename(path.c_str(), (path + ".old").c_str()) != 0)
            _exit(1);
        const int other = os_socket_listen(path.c_str());
        control_close();
        _exit(other >= 0 ? 0 : 2);
    }
    expect_success(child);
    EXPECT_EQ(unlink(path.c_str()), 0) << "the file is removed only by its own process";
    EXPECT_EQ(unlink((path + ".old").c_str()), 0);
}

} // namespace control_socket_test
