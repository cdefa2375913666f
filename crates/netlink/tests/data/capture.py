#!/usr/bin/env python3
"""Captures the netlink messages that the tests of this crate decode.

Run as root in a fresh network namespace (`unshare -n ./capture.py VERB ...`); it changes rules there.
Each verb writes what `recv` returned, buffers one after the other, to the file named last.

  nfacct-new NAME...            creates accounting objects (no output file)
  dump MSG FAMILY OUT [ATTRS]   nf_tables dump; MSG is gettable, getchain, getrule; ATTRS like table=nat chain=X
  ct-dump FAMILY OUT            conntrack dump
  nfacct-get OUT                accounting dump
  getgen OUT                    one GETGEN reply
  error OUT                     the reply to a batch that fails (extended acknowledgements on)
  error-text OUT                the reply to a message whose attribute is malformed (the kernel adds words)
  error-generation OUT          the reply to a batch made for another generation
  ack OUT                       the reply to a batch that succeeds, acknowledgement on its last operation
  ipset-name INDEX OUT          the reply to the question for a set's name
  send FILE OUT                 the reply to the bytes of FILE
  nflog OUT CMD...              everything NFLOG group 0 said while CMD ran
  events OUT CMD...             everything the nftables and nftrace groups said while CMD ran
"""
import os, select, socket, struct, subprocess, sys

SOL_NETLINK, ADD_MEMBERSHIP, EXT_ACK, CAP_ACK = 270, 1, 11, 10
NFT, CT, ACCT = 10 << 8, 1 << 8, 7 << 8
MSG = {"gettable": 1, "getchain": 4, "getrule": 7, "getgen": 16}
FAMILY = {"any": 0, "inet": 1, "ip": 2, "ip6": 10}


def attr(kind, data):
    length = 4 + len(data)
    return struct.pack("=HH", length, kind) + data + bytes(-length % 4)


def message(kind, flags, family, attrs=b"", res_id=0, seq=1):
    body = struct.pack(">BBH", family, 0, res_id) + attrs
    return struct.pack("=IHHII", 16 + len(body), kind, flags, seq, 0) + body


def open_socket():
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    sock.setsockopt(SOL_NETLINK, EXT_ACK, 1)
    sock.bind((0, 0))
    return sock


def receive(sock, out, until_done):
    while True:
        buf = sock.recv(1 << 17)
        out.write(buf)
        if not until_done:
            return
        at = 0
        while at < len(buf):
            length, kind = struct.unpack_from("=IH", buf, at)
            if kind in (2, 3):
                return
            at += (length + 3) & ~3


def ask(msg, path, until_done=True):
    sock = open_socket()
    sock.send(msg)
    with open(path, "wb") as out:
        receive(sock, out, until_done)


def batch(operations):
    begin = message(16, 1, 0, res_id=10, seq=1)
    end = message(17, 1, 0, res_id=10, seq=100)
    return begin + b"".join(operations) + end


def main(verb, *args):
    if verb == "nfacct-new":
        sock = open_socket()
        for name in args:
            sock.send(message(ACCT | 0, 5 | 0x400, 0, attr(1, name.encode() + b"\0")))
            print(sock.recv(4096).hex())
    elif verb == "dump":
        kind, family, path, *rest = args
        ids = {"table": 1, "chain": 2 if kind == "getrule" else 3}
        attrs = b"".join(attr(ids[k], v.encode() + b"\0") for k, v in (x.split("=") for x in rest))
        ask(message(NFT | MSG[kind], 0x301, FAMILY[family], attrs), path)
    elif verb == "ct-dump":
        ask(message(CT | 1, 0x301, FAMILY[args[0]]), args[1])
    elif verb == "nfacct-get":
        ask(message(ACCT | 1, 0x301, 0), args[0])
    elif verb == "getgen":
        ask(message(NFT | 16, 1, 0), args[0], until_done=False)
    elif verb == "error":
        # DELRULE with a handle that does not exist, in a table that does.
        op = message(NFT | 8, 5, 2, attr(1, b"nat\0") + attr(2, b"OUTPUT\0") + attr(3, struct.pack(">Q", 999999)), seq=7)
        ask(batch([op]), args[0], until_done=False)
    elif verb == "error-text":
        # The handle has four bytes instead of eight.
        op = message(NFT | 8, 5, 2, attr(1, b"nat\0") + attr(2, b"OUTPUT\0") + attr(3, bytes(4)), seq=7)
        ask(batch([op]), args[0], until_done=False)
    elif verb == "error-generation":
        op = message(NFT | 0, 5 | 0x400, 2, attr(1, b"cap-c\0"), seq=7)
        begin = message(16, 1, 0, attr(1, struct.pack(">I", 4000000)), res_id=10, seq=1)
        ask(begin + op + message(17, 1, 0, res_id=10, seq=100), args[0], until_done=False)
    elif verb == "ack":
        ops = [message(NFT | 0, 1 | 0x400, 2, attr(1, b"cap-a\0"), seq=7), message(NFT | 0, 5 | 0x400, 2, attr(1, b"cap-b\0"), seq=8)]
        ask(batch(ops), args[0], until_done=False)
    elif verb == "ipset-name":
        attrs = attr(1, b"\7") + attr(11, struct.pack(">H", int(args[0])))
        ask(message(6 << 8 | 15, 1, 0, attrs), args[1], until_done=False)
    elif verb == "send":
        ask(open(args[0], "rb").read(), args[1], until_done=False)
    elif verb == "nflog":
        # The only listener of group 0, 128 bytes of each packet; its own acknowledgement is not kept.
        path, *command = args
        sock = open_socket()
        sock.send(message(4 << 8 | 1, 5, 0, attr(1, b"\1") + attr(2, struct.pack(">IBB", 128, 2, 0))))
        sock.recv(4096)
        subprocess.run(command, check=False)
        with open(path, "wb") as out:
            while select.select([sock], [], [], 0.3)[0]:
                out.write(sock.recv(1 << 17))
    elif verb == "events":
        path, *command = args
        sock = open_socket()
        for group in (7, 9):
            sock.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, group)
        subprocess.run(command, check=False)
        with open(path, "wb") as out:
            while select.select([sock], [], [], 0.3)[0]:
                out.write(sock.recv(1 << 17))
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
