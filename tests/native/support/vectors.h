// Frames of test vectors in files of tests/data.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace etloop::test {

// Return the bytes of each "frame" in a JSON file, in hexadecimal digits there; none if the file cannot be read.
inline std::vector<std::vector<uint8_t>> frames_of(const std::string& name) {
  std::ifstream file(TEST_DATA + name);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string key = "\"frame\": \"";
  std::vector<std::vector<uint8_t>> frames;
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at)) {
    std::vector<uint8_t>& frame = frames.emplace_back();
    for (at += key.size(); text[at] != '"'; at += 2) {
      frame.push_back(static_cast<uint8_t>(std::stoi(text.substr(at, 2), nullptr, 16)));
    }
  }
  return frames;
}

}  // namespace etloop::test
