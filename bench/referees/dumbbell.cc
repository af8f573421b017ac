// TCP flows over one drop-tail bottleneck in ns-3, for comparison with the engine in gtp-peers.
// Usage: dumbbell LAW MBPS RTT_MS QUEUE_PACKETS FLOWS SECONDS LOSE_EVERY LEAST_TIMEOUT_MS
// LAW is newreno, cubic or bbr.
//
// Segments of 1,460 bytes and 54 of headers (timestamps, and 2 of the point-to-point link), without
// which ns-3's BBR comes to nothing; acknowledgments for each; initial window 2; flows start 0.37 s
// apart. LOSE_EVERY 0 loses nothing, n every n-th packet that comes out of the bottleneck. What is
// counted begins after a third of the time.
// Prints what dumbbell.tcl prints, and of all flows "timeouts N", and "early N": how many of those
// rang sooner after the first outstanding segment had last been sent than a smoothed round trip,
// when no acknowledgment of it could be there.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

using namespace ns3;

namespace {

const uint32_t SEGMENT = 1460;

/// Loses every so manyth packet, exactly.
class EveryNth : public ErrorModel {
  public:
    uint64_t every = 0;

  private:
    uint64_t seen = 0;
    bool DoCorrupt(Ptr<Packet>) override { return every > 0 && ++seen % every == 0; }
    void DoReset() override { seen = 0; }
};

uint64_t offered = 0;
uint64_t dropped = 0;
double window = 0.0;

void Offer(Ptr<const Packet>) { ++offered; }
void Lose(Ptr<const Packet>) { ++dropped; }
void Refuse(Ptr<const Packet>) { ++offered, ++dropped; }
void Move(uint32_t, uint32_t now) { window = double(now) / SEGMENT; }

uint32_t timeouts = 0;
uint32_t early = 0;

/// A sender's timer, beside what it guards.
struct Watch {
    std::unordered_map<uint32_t, Time> sent;
    SequenceNumber32 first;
    Time rtt;

    void Send(Ptr<const Packet> packet, const TcpHeader &header, Ptr<const TcpSocketBase>) {
        if (packet->GetSize() > 0) {
            sent[header.GetSequenceNumber().GetValue()] = Simulator::Now();
        }
    }
    void Acknowledge(SequenceNumber32, SequenceNumber32 now) { first = now; }
    void Measure(Time, Time now) { rtt = now; }
    void Turn(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t now) {
        if (now == TcpSocketState::CA_LOSS) {
            ++timeouts;
            early += Simulator::Now() - sent[first.GetValue()] < rtt;
        }
    }
};

void Follow(Ptr<Application> bulk, Watch *watch, bool isFirst) {
    auto socket = DynamicCast<BulkSendApplication>(bulk)->GetSocket();
    socket->TraceConnectWithoutContext("Tx", MakeCallback(&Watch::Send, watch));
    socket->TraceConnectWithoutContext("HighestRxAck", MakeCallback(&Watch::Acknowledge, watch));
    socket->TraceConnectWithoutContext("RTT", MakeCallback(&Watch::Measure, watch));
    socket->TraceConnectWithoutContext("CongState", MakeCallback(&Watch::Turn, watch));
    if (isFirst) {
        socket->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&Move));
    }
}

/// The first flow's window, sampled.
struct Course {
    uint64_t samples = 0;
    double sum = 0.0, most = 0.0, least = 1e9, before = 0.0;
    uint32_t cuts = 0;
    std::vector<double> all;

    void Sample() {
        ++samples;
        sum += window;
        most = std::max(most, window);
        least = std::min(least, window);
        cuts += window < 0.95 * before;
        before = window;
        all.push_back(window);
        Simulator::Schedule(MilliSeconds(20), &Course::Sample, this);
    }
};

/// The parameters that the other simulators' flows have.
void SetDefaults(const std::string &law, uint64_t leastTimeoutMs) {
    const std::string type = law == "cubic" ? "Cubic" : law == "bbr" ? "Bbr" : "NewReno";
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::Tcp" + type));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(40'000'000));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(40'000'000));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(leastTimeoutMs)));
    // A full segment must not be cut by IP.
    Config::SetDefault("ns3::PointToPointNetDevice::Mtu", UintegerValue(1600));
    // The engine's slow start is the standard's.
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
    // Nothing on the way but the bottleneck's own queue may lose.
    Config::SetDefault("ns3::DropTailQueue<Packet>::MaxSize", StringValue("100000p"));
}

} // namespace

int main(int argc, char **argv) {
    const std::string law = argc > 1 ? argv[1] : "";
    if (argc != 9 || (law != "newreno" && law != "cubic" && law != "bbr")) {
        std::fprintf(stderr, "usage: dumbbell newreno|cubic|bbr "
                             "MBPS RTT_MS QUEUE_PACKETS FLOWS SECONDS LOSE_EVERY LEAST_TIMEOUT_MS\n");
        return 2;
    }
    const uint64_t mbps = std::strtoull(argv[2], nullptr, 10);
    const double rtt = std::atof(argv[3]);
    const std::string queue = std::string(argv[4]) + "p";
    const uint32_t flows = std::strtoul(argv[5], nullptr, 10);
    const double seconds = std::atof(argv[6]);
    const uint64_t every = std::strtoull(argv[7], nullptr, 10);
    SetDefaults(law, std::strtoull(argv[8], nullptr, 10));

    NodeContainer middle, sources, sinks;
    middle.Create(2);
    sources.Create(flows);
    sinks.Create(flows);
    InternetStackHelper internet;
    internet.InstallAll();

    // Of the round trip 2 ms are on the way to the bottleneck and 2 ms behind it. Without flow
    // control a device has no queue discipline above it.
    PointToPointHelper link, access;
    link.DisableFlowControl();
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(mbps * 1'000'000)));
    link.SetChannelAttribute("Delay", TimeValue(Seconds((rtt - 4.0) / 2000.0)));
    access.DisableFlowControl();
    access.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    access.SetChannelAttribute("Delay", StringValue("1ms"));

    NetDeviceContainer ends = link.Install(middle);
    auto device = DynamicCast<PointToPointNetDevice>(ends.Get(0));
    device->GetQueue()->SetMaxSize(QueueSize(queue));
    device->GetQueue()->TraceConnectWithoutContext("Enqueue", MakeCallback(&Offer));
    device->GetQueue()->TraceConnectWithoutContext("DropBeforeEnqueue", MakeCallback(&Refuse));
    Ptr<EveryNth> thief = CreateObject<EveryNth>();
    thief->every = every;
    ends.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(thief));
    ends.Get(1)->TraceConnectWithoutContext("PhyRxDrop", MakeCallback(&Lose));

    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    addresses.Assign(ends);
    std::vector<Ptr<PacketSink>> taken;
    std::vector<Watch> watches(flows);
    for (uint32_t k = 0; k < flows; ++k) {
        addresses.NewNetwork();
        addresses.Assign(access.Install(sources.Get(k), middle.Get(0)));
        addresses.NewNetwork();
        auto last = addresses.Assign(access.Install(middle.Get(1), sinks.Get(k)));
        const Time start = MilliSeconds(370 * k);
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(last.GetAddress(1), 5000));
        bulk.SetAttribute("SendSize", UintegerValue(SEGMENT));
        ApplicationContainer sender = bulk.Install(sources.Get(k));
        sender.Start(start);
        const Time after = start + NanoSeconds(1);
        Simulator::Schedule(after, &Follow, sender.Get(0), &watches[k], k == 0);
        PacketSinkHelper sink("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), 5000));
        ApplicationContainer app = sink.Install(sinks.Get(k));
        app.Start(Seconds(0));
        taken.push_back(DynamicCast<PacketSink>(app.Get(0)));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    Simulator::Stop(Seconds(seconds / 3.0));
    Simulator::Run();
    const uint64_t offered_before = offered, dropped_before = dropped;
    const uint32_t timeouts_before = timeouts, early_before = early;
    std::vector<uint64_t> before;
    for (const auto &sink : taken) {
        before.push_back(sink->GetTotalRx());
    }
    Course course;
    course.Sample();
    Simulator::Stop(Seconds(seconds * 2.0 / 3.0));
    Simulator::Run();
    for (uint32_t k = 0; k < flows; ++k) {
        std::printf("flow %u %.0f\n", k, double(taken[k]->GetTotalRx() - before[k]) / SEGMENT);
    }
    std::printf("offered %llu\n", static_cast<unsigned long long>(offered - offered_before));
    std::printf("dropped %llu\n", static_cast<unsigned long long>(dropped - dropped_before));
    std::printf("window_mean %f\nwindow_most %f\n", course.sum / course.samples, course.most);
    std::printf("window_least %f\ncuts %u\n", course.least, course.cuts);
    std::printf("course");
    for (const double one : course.all) {
        std::printf(" %.2f", one);
    }
    std::printf("\n");
    std::printf("timeouts %u\nearly %u\n", timeouts - timeouts_before, early - early_before);
    Simulator::Destroy();
    return 0;
}
