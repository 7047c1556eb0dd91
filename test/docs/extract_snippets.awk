# Writes the marked ```cpp blocks of a Markdown page to folder/<page>_<line>_<name>. Blank lines keep the compiler's
# line numbers equal to the page's.
BEGIN {
  page = ARGV[1]
  sub(/^.*\//, "", page)
  sub(/\.md$/, "", page)
}
/^```/ {
  if (inside) {
    if (unit != "") close(unit)
    inside = 0
  } else {
    inside = 1
    first = $0 ~ /^```cpp *$/
  }
  unit = ""
  next
}
inside && first {
  first = 0
  name = ""
  if ($0 ~ /^\/\/ file: [a-z0-9_]+\.cpp *$/) name = $3
  else if ($0 ~ /^\/\/ compile *$/) name = "snippet.cpp"
  if (name != "") {
    unit = folder "/" page "_" NR "_" name
    for (i = 1; i < NR; ++i) print "" > unit
  }
}
inside && unit != "" { print > unit }
END {
  if (inside) {
    print page ".md: a code block is not closed" > "/dev/stderr"
    exit 1
  }
}
