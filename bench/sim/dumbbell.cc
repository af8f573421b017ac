// The dumbbell in ns-3: long BulkSend flows of TcpNewReno over one 1 Gbit/s bottleneck, 50 ms
// round trip, 1,000-byte packets, no traces. Usage: dumbbell SECONDS FLOWS
// Prints the data packets that arrived.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace ns3;

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 30.0;
    const uint32_t flows = argc > 2 ? std::atoi(argv[2]) : 10;
    // 20 bytes of IP, 20 of TCP and 12 of its timestamps make 1,000.
    const uint32_t segment = 948;

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(20'000'000));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(20'000'000));
    Config::SetDefault("ns3::DropTailQueue<Packet>::MaxSize", StringValue("6250p"));

    NodeContainer middle;
    middle.Create(2);
    NodeContainer sources;
    sources.Create(flows);
    NodeContainer sinks;
    sinks.Create(flows);
    InternetStackHelper internet;
    internet.InstallAll();

    PointToPointHelper bottleneck;
    bottleneck.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    bottleneck.SetChannelAttribute("Delay", StringValue("23ms"));
    PointToPointHelper access;
    access.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    access.SetChannelAttribute("Delay", StringValue("1ms"));

    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    addresses.Assign(bottleneck.Install(middle));
    std::vector<Ipv4Address> at;
    for (uint32_t i = 0; i < flows; ++i) {
        addresses.NewNetwork();
        addresses.Assign(access.Install(sources.Get(i), middle.Get(0)));
        addresses.NewNetwork();
        at.push_back(addresses.Assign(access.Install(middle.Get(1), sinks.Get(i))).GetAddress(1));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    std::vector<Ptr<PacketSink>> taken;
    for (uint32_t i = 0; i < flows; ++i) {
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(at[i], 5000));
        bulk.SetAttribute("SendSize", UintegerValue(segment));
        bulk.Install(sources.Get(i)).Start(Seconds(0));
        PacketSinkHelper sink("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), 5000));
        ApplicationContainer app = sink.Install(sinks.Get(i));
        app.Start(Seconds(0));
        taken.push_back(DynamicCast<PacketSink>(app.Get(0)));
    }
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    uint64_t packets = 0;
    for (const auto &sink : taken) {
        packets += sink->GetTotalRx() / segment;
    }
    std::printf("data_packets    %llu\n", static_cast<unsigned long long>(packets));
    Simulator::Destroy();
    return 0;
}
