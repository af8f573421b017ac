// Managed queues of ns-3 in front of a link of 10 Mbit/s, for comparison with those here.
// Usage: queues codel|fq-codel|pie LOAD[,LOAD...] SECONDS SEED
//
// Each LOAD is a flow's share of the link: packets of 1,500 bytes come as a Poisson process, drawn
// from SEED as crates/gtp-peers/tests/router_ns3.rs draws them, and nobody answers to drops. The
// link takes a packet when it is idle. Prints how many packets were offered, sent and dropped, the
// mean wait of those that were sent, in milliseconds, and each flow's share of what was sent.

#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/traffic-control-module.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

const uint32_t PACKET = 1500;
const Time SERVICE = MicroSeconds(1200);

/// A packet that knows its flow and when it came.
class Item : public QueueDiscItem {
  public:
    Item(uint32_t flow, Time came)
        : QueueDiscItem(Create<Packet>(PACKET), Address(), 0), flow(flow), came(came) {}
    const uint32_t flow;
    const Time came;

  private:
    void AddHeader() override {}
    bool Mark() override { return false; }
    uint32_t Hash(uint32_t) const override { return flow; }
};

/// Knuth's generator, and from it gaps of a Poisson process.
class Draw {
  public:
    explicit Draw(uint64_t seed) : state(seed) {}
    Time Gap(double mean) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const double unit = double(state >> 11) / 9007199254740992.0;
        return NanoSeconds(int64_t(-std::log(1.0 - unit) * mean * 1e9));
    }

  private:
    uint64_t state;
};

Ptr<QueueDisc> disc;
bool busy = false;
uint64_t offered = 0;
uint64_t sent = 0;
double waited = 0.0;
std::vector<uint64_t> served;
std::vector<Draw> draws;
std::vector<double> means;

void Serve() {
    const Ptr<QueueDiscItem> next = disc->Dequeue();
    busy = bool(next);
    if (!busy) {
        return;
    }
    const auto item = DynamicCast<Item>(next);
    ++sent, ++served[item->flow];
    waited += (Simulator::Now() - item->came).GetSeconds();
    Simulator::Schedule(SERVICE, &Serve);
}

void Arrive(uint32_t flow) {
    ++offered;
    disc->Enqueue(Create<Item>(flow, Simulator::Now()));
    if (!busy) {
        Serve();
    }
    Simulator::Schedule(draws[flow].Gap(means[flow]), &Arrive, flow);
}

Ptr<QueueDisc> Make(const std::string& kind) {
    ObjectFactory factory;
    if (kind == "codel") {
        factory.SetTypeId("ns3::CoDelQueueDisc");
    } else if (kind == "fq-codel") {
        factory.SetTypeId("ns3::FqCoDelQueueDisc");
    } else {
        factory.SetTypeId("ns3::PieQueueDisc");
        factory.Set("MeanPktSize", UintegerValue(PACKET));
        factory.Set("UseDerandomization", BooleanValue(true));
    }
    factory.Set("MaxSize", StringValue("10000p"));
    const auto made = factory.Create<QueueDisc>();
    if (kind == "fq-codel") {
        DynamicCast<FqCoDelQueueDisc>(made)->SetQuantum(1514);
    }
    return made;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: queues codel|fq-codel|pie LOAD[,LOAD...] SECONDS SEED\n");
        return 2;
    }
    const uint64_t seed = std::strtoull(argv[4], nullptr, 10);
    RngSeedManager::SetSeed(uint32_t(seed));
    std::istringstream loads(argv[2]);
    for (std::string load; std::getline(loads, load, ',');) {
        means.push_back(SERVICE.GetSeconds() / std::atof(load.c_str()));
        draws.emplace_back(seed + 1000 * means.size());
    }
    served.resize(means.size());
    disc = Make(argv[1]);
    disc->Initialize();
    for (uint32_t flow = 0; flow < means.size(); ++flow) {
        Simulator::Schedule(draws[flow].Gap(means[flow]), &Arrive, flow);
    }
    Simulator::Stop(Seconds(std::atof(argv[3])));
    Simulator::Run();
    std::printf("offered %lu sent %lu dropped %u wait_ms %.4f shares", (unsigned long)offered,
                (unsigned long)sent, disc->GetStats().nTotalDroppedPackets, 1e3 * waited / sent);
    for (const uint64_t of_flow : served) {
        std::printf(" %.4f", double(of_flow) / double(sent));
    }
    std::printf("\n");
    Simulator::Destroy();
    return 0;
}
