# Writes OUTPUT, a C++ source that defines the text NAME, declared in HEADER, as what FILES hold, one after the other.
#   cmake -DFILES=<file,file...> -DNAME=<name> -DHEADER=<header> -DOUTPUT=<file> -P embed_text.cmake
string(REPLACE "," ";" FILES "${FILES}")
set(text "")
foreach(each ${FILES})
  file(READ ${each} part)
  string(APPEND text "${part}")
endforeach()
# A literal has a limited length: pieces that follow each other are one.
string(LENGTH "${text}" length)
set(pieces "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND pieces "\n    R\"embedded(${piece})embedded\"")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace trireme {

const char* const ${NAME} =${pieces};

}  // namespace trireme
")
