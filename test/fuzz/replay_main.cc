// Runs a harness over files and the files of folders, for builds without libFuzzer: so the
// committed corpora are a test of every build.

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace
{

bool is_directory(const std::string &path)
{
    struct stat facts;
    return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

std::vector<std::string> files_of(const std::string &path)
{
    if (!is_directory(path))
        return {path};
    std::vector<std::string> files;
    DIR *directory = opendir(path.c_str());
    while (const dirent *entry = directory ? readdir(directory) : nullptr)
        if (entry->d_name[0] != '.')
            files.push_back(path + "/" + entry->d_name);
    if (directory)
        closedir(directory);
    std::sort(files.begin(), files.end());
    return files;
}

std::vector<uint8_t> contents(const std::string &path)
{
    FILE *file = fopen(path.c_str(), "re");
    fuzz::require(file != nullptr, path.c_str());
    std::vector<uint8_t> bytes(1 << 16);
    bytes.resize(fread(bytes.data(), 1, bytes.size(), file));
    fclose(file);
    return bytes;
}

} // namespace

int main(int argc, char **argv)
{
    size_t runs = 0;
    for (int i = 1; i < argc; i++)
        for (const std::string &path : files_of(argv[i])) {
            // printed before the run, which may end the process
            fprintf(stderr, "%s\n", path.c_str());
            const std::vector<uint8_t> bytes = contents(path);
            LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
            runs++;
        }
    printf("%zu inputs\n", runs);
    return runs == 0;
}
