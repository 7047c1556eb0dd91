// SPDX-License-Identifier: Apache-2.0
// Makes a program of the units, one per header, that it is linked with.
int main() {}
