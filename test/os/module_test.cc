// Where code is from and which build of it, beside what the dynamic linker says of the same.

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <string>

extern "C" {
#include "os/os.h"
}

namespace
{

// By dl_iterate_phdr.
struct Loaded {
    uintptr_t address = 0; // looked for
    uintptr_t base = 0;
    std::string id;
    bool found = false;
};

void read_notes(const char *notes, size_t bytes, std::string *id)
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        memcpy(&head, notes, sizeof head);
        const size_t name = (head.n_namesz + 3) / 4 * 4;
        const size_t whole = sizeof head + name + (head.n_descsz + 3) / 4 * 4;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4)
            *id = std::string(notes + sizeof head + name, head.n_descsz);
        if (whole > bytes)
            return;
        notes += whole;
        bytes -= whole;
    }
}

Loaded look(uintptr_t address)
{
    Loaded loaded;
    loaded.address = address;
    dl_iterate_phdr(
        [](struct dl_phdr_info *info, size_t, void *context) {
            auto *wanted = static_cast<Loaded *>(context);
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) &part = info->dlpi_phdr[i];
                const uintptr_t start = info->dlpi_addr + part.p_vaddr;
                if (part.p_type == PT_LOAD && wanted->address >= start &&
                    wanted->address - start < part.p_memsz)
                    wanted->found = true;
            }
            for (int i = 0; wanted->found && i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) &part = info->dlpi_phdr[i];
                wanted->base = info->dlpi_addr;
                if (part.p_type == PT_NOTE && wanted->id.empty())
                    read_notes(reinterpret_cast<const char *>(info->dlpi_addr + part.p_vaddr),
                               part.p_memsz, &wanted->id);
            }
            return wanted->found ? 1 : 0;
        },
        &loaded);
    return loaded;
}

void expect_same(uintptr_t address)
{
    struct os_module module;
    if (!os_module_of(address, &module))
        GTEST_SKIP() << "this libc does not tell";
    const Loaded loaded = look(address);
    ASSERT_TRUE(loaded.found);
    EXPECT_EQ(module.base, loaded.base);
    uintptr_t base = 0;
    EXPECT_EQ(os_locate(address, &base), module.path);
    EXPECT_EQ(base, loaded.base);
    EXPECT_GE(address, module.start);
    EXPECT_LT(address, module.end);
    const unsigned char *id = nullptr;
    const size_t bytes = os_module_build_id(&module, &id);
    EXPECT_EQ(std::string(reinterpret_cast<const char *>(id), bytes), loaded.id);
}

TEST(Module, OfTheProgram)
{
    const auto own = reinterpret_cast<uintptr_t>(&look);
    expect_same(own);
    struct os_module module, program;
    if (!os_module_of(own, &module))
        GTEST_SKIP() << "this libc does not tell";
    EXPECT_TRUE(module.is_program);
    char path[4096] = "";
    char found[4096] = "";
    ASSERT_GT(readlink("/proc/self/exe", path, sizeof path - 1), 0);
    EXPECT_STREQ(realpath(module.path, found), path);
    ASSERT_TRUE(os_module_of_program(&program));
    EXPECT_EQ(program.base, module.base);
}

TEST(Module, OfLibraries)
{
    expect_same(reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "qsort")));
    void *library = dlopen("libz.so.1", RTLD_NOW);
    if (library == nullptr)
        GTEST_SKIP() << "no library to load";
    const auto late = reinterpret_cast<uintptr_t>(dlsym(library, "zlibVersion"));
    expect_same(late);
    struct os_module module;
    if (!os_module_of(late, &module))
        GTEST_SKIP() << "this libc does not tell";
    EXPECT_FALSE(module.is_program);
    EXPECT_NE(std::string(module.path).find("libz.so"), std::string::npos);
}

TEST(Module, OfNothing)
{
    struct os_module module;
    int local = 0;
    EXPECT_FALSE(os_module_of(16, &module));
    EXPECT_FALSE(os_module_of(reinterpret_cast<uintptr_t>(&local), &module));
    uintptr_t base = 0;
    EXPECT_EQ(os_locate(0, &base), nullptr);
}

} // namespace
