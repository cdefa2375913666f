//! Upstream 1.36's feature gates: which exist, and which cannot be moved any more.
//!
//! Observed from upstream's own answers to each gate being set to true and to false.

use std::collections::BTreeMap;

/// What setting gates comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateNotes {
    /// Gates that do not exist. Upstream's answer is a warning.
    pub unknown: Vec<String>,
    /// Gates that exist and change nothing here.
    pub without_effect: Vec<String>,
}

/// A gate that cannot be set to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    /// The gate.
    pub name: String,
    /// What it always is.
    pub value: bool,
}

impl std::fmt::Display for Locked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Locked { name, value } = self;
        write!(
            f,
            "cannot set feature gate {name} to {}, feature is locked to {value}",
            !value
        )
    }
}

/// Looks at gates that were set.
///
/// # Errors
/// The first one, by name, that is locked to the other value.
pub fn check_gates(gates: &BTreeMap<String, bool>) -> Result<GateNotes, Locked> {
    let mut notes = GateNotes::default();
    for (name, value) in gates {
        let locked = [(LOCKED_ON, true), (LOCKED_OFF, false)]
            .into_iter()
            .find(|(names, _)| names.contains(&name.as_str()));
        match locked {
            Some((_, locked)) if locked != *value => {
                return Err(Locked {
                    name: name.clone(),
                    value: locked,
                });
            }
            Some(_) => {}
            None if WITH_EFFECT.contains(&name.as_str()) => {}
            None if KNOWN.contains(&name.as_str()) => notes.without_effect.push(name.clone()),
            None => notes.unknown.push(name.clone()),
        }
    }
    Ok(notes)
}

/// Gates that change something here.
const WITH_EFFECT: &[&str] = &[
    "AllowServiceExternalIPs",
    "ComponentFlagz",
    "ComponentStatusz",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
];

/// Always true.
#[rustfmt::skip]
const LOCKED_ON: &[&str] = &[
    "APIServerTracing", "AggregatedDiscoveryRemoveBetaType", "AnonymousAuthConfigurableEndpoints",
    "AnyVolumeDataSource", "AuthorizeNodeWithSelectors", "AuthorizeWithSelectors", "BtreeWatchCache",
    "CPUManagerPolicyOptions", "CRDValidationRatcheting", "CSIServiceAccountTokenSecrets", "ConsistentListFromCache",
    "CustomResourceFieldSelectors", "DRAAdminAccess", "DeclarativeValidation", "DisableAllocatorDualWrite",
    "DisableNodeKubeProxyVersion", "DynamicResourceAllocation", "ExecProbeTimeout",
    "ExternalServiceAccountTokenSigner", "ImageMaximumGCAge", "ImageVolume", "InOrderInformers",
    "InPlacePodVerticalScaling", "JobBackoffLimitPerIndex", "JobManagedBy", "JobPodReplacementPolicy",
    "JobSuccessPolicy", "KubeletCgroupDriverFromCRI", "KubeletFineGrainedAuthz", "KubeletPSI",
    "KubeletPodResourcesDynamicResources", "KubeletPodResourcesGet", "KubeletTracing", "LogarithmicScaleDown",
    "MatchLabelKeysInPodAffinity", "MultiCIDRServiceAllocator", "MutableCSINodeAllocatableCount", "NFTablesProxyMode",
    "NodeInclusionPolicyInPodTopologySpread", "NodeLogQuery", "NodeSwap", "OrderedNamespaceDeletion",
    "PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero", "PodObservedGenerationTracking",
    "PodSchedulingReadiness", "PreferSameTrafficDistribution", "ProcMountType", "RecoverVolumeExpansionFailure",
    "RecursiveReadOnlyMounts", "RelaxedDNSSearchValidation", "RelaxedEnvironmentVariableValidation",
    "ResilientWatchCacheInitialization", "RetryGenerateName", "SELinuxChangePolicy", "SELinuxMountReadWriteOncePod",
    "SchedulerQueueingHints", "SeparateTaintEvictionController", "ServiceAccountTokenJTI",
    "ServiceAccountTokenNodeBinding", "ServiceAccountTokenNodeBindingValidation", "ServiceAccountTokenPodNodeInfo",
    "SidecarContainers", "StreamingCollectionEncodingToJSON", "StreamingCollectionEncodingToProtobuf",
    "StructuredAuthenticationConfiguration", "SupplementalGroupsPolicy", "TopologyManagerPolicyOptions",
    "UserNamespacesSupport", "VolumeAttributesClass", "WinDSR", "WinOverlay",
];

/// Always false.
#[rustfmt::skip]
const LOCKED_OFF: &[&str] = &[
    "AllowOverwriteTerminationGracePeriodSeconds", "GitRepoVolumeDriver", "SeparateCacheWatchRPC",
];

/// Accepted either way.
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "APIResponseCompression", "APIServerIdentity", "APIServingWithRoutine", "AllAlpha", "AllBeta",
    "AllowDNSOnlyNodeCSR", "AllowInsecureKubeletCertificateSigningRequests", "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion", "AtomicFIFO", "AuthorizePodWebsocketUpgradeCreatePermission",
    "CBORServingAndStorage", "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions",
    "CRDObservedGenerationTracking", "CRIListStreaming", "CSIVolumeHealth", "ChangeContainerStatusOnKubeletRestart",
    "ClearingNominatedNodeNameAfterBinding", "ClientsAllowCARotation", "ClientsAllowCBOR", "ClientsAllowTLSCacheGC",
    "ClientsPreferCBOR", "CloudControllerManagerWatchBasedRoutesReconciliation", "CloudControllerManagerWebhook",
    "ClusterTrustBundle", "ClusterTrustBundleProjection",
    "ConcurrentWatchObjectDecode", "ConstrainedImpersonation", "ContainerCheckpoint", "ContainerRestartRules",
    "ContainerStopSignals", "ContextualLogging", "ControllerManagerReleaseLeaderElectionLockOnExit",
    "CoordinatedLeaderElection", "CrossNamespaceVolumeDataSource", "CustomCPUCFSQuotaPeriod", "DRAConsumableCapacity",
    "DRADeviceBindingConditions", "DRADeviceTaintRules", "DRADeviceTaints", "DRAExtendedResource",
    "DRAListTypeAttributes", "DRANodeAllocatableResources", "DRAPartitionableDevices", "DRAPrioritizedList",
    "DRAResourceClaimDeviceStatus", "DRAResourceClaimGranularStatusAuthorization", "DRAResourcePoolStatus",
    "DRASchedulerFilterTimeout", "DRAWorkloadResourceClaims", "DeclarativeValidationBeta",
    "DeclarativeValidationTakeover", "DeploymentReplicaSetTerminatingReplicas", "DetectCacheInconsistency",
    "DisableCPUQuotaWithExclusiveCPUs", "EnvFiles", "EventedPLEG", "ExtendWebSocketsToKubelet", "GangScheduling",
    "GenericWorkload", "GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority", "HPAConfigurableTolerance",
    "HPAScaleToZero", "HostnameOverride", "ImageVolumeWithDigest", "InOrderInformersBatchProcess",
    "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory", "InPlacePodVerticalScalingInitContainers", "InformerResourceVersion",
    "KMSv1", "KubeletCrashLoopBackOffMax", "KubeletEnsureSecretPulledImages", "KubeletInUserNamespace",
    "KubeletPodResourcesListUseActivePods", "KubeletRegistrationGetOnExistsOnly", "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders", "ListFromCacheSnapshot",
    "LocalStorageCapacityIsolationFSQuotaMonitoring", "ManifestBasedAdmissionControlConfig",
    "MatchLabelKeysInPodTopologySpread", "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "MaxUnavailableStatefulSet", "MemoryQoS", "MinimumKubeletVersion", "MutablePVNodeAffinity",
    "MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs", "MutatingAdmissionPolicy",
    "NativeHistograms", "NodeDeclaredFeatures", "NominatedNodeNameForExpectation", "OpenAPIEnums",
    "OpportunisticBatching", "PLEGOnDemandRelist", "PersistentVolumeClaimUnusedSinceTime",
    "PodAndContainerStatsFromCRI", "PodCertificateRequest", "PodDeletionCost", "PodLevelResourceManagers",
    "PodLevelResources", "PodLogsQuerySplitStreams", "PodReadyToStartContainersCondition",
    "PodTopologyLabelsAdmission", "PodsAPI", "PortForwardWebsockets", "PreventStaticPodAPIReferences", "QOSReserved",
    "ReduceDefaultCrashLoopBackOffDecay", "RelaxedServiceNameValidation", "ReloadKubeletServerCertificateFile",
    "RemoteRequestHeaderUID", "ResourceHealthStatus", "ResourceHealthStatusMessage",
    "RestartAllContainersOnContainerExits", "RotateKubeletServerCertificate", "RouteExternalCertificate",
    "RuntimeClassInImageCriApi", "SELinuxMount", "SchedulerAsyncAPICalls", "SchedulerAsyncPreemption",
    "SchedulerPopFromBackoffQ", "ServiceAccountNodeAudienceRestriction", "ServiceCIDRStatusFieldWiping",
    "ShardedListAndWatch", "SizeBasedListCostEstimate", "StaleControllerConsistencyDaemonSet",
    "StaleControllerConsistencyJob", "StaleControllerConsistencyReplicaSet", "StaleControllerConsistencyStatefulSet",
    "StatefulSetSemanticRevisionComparison", "StorageCapacityScoring", "StorageNamespaceIndex",
    "StoragePerformantSecurityPolicy", "StorageVersionAPI", "StorageVersionHash", "StorageVersionMigrator",
    "StrictIPCIDRValidation", "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics", "TaintTolerationComparisonOperators",
    "TokenRequestServiceAccountUIDValidation", "TopologyAwareWorkloadScheduling", "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions", "TranslateStreamCloseWebsocketRequests", "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy", "UnlockWhileProcessingFIFO", "UserNamespacesHostNetworkSupport",
    "VolumeLimitScaling", "WatchCacheInitializationPostStartHook", "WatchList", "WatchListClient",
    "WindowsCPUAndMemoryAffinity", "WindowsGracefulNodeShutdown", "WindowsHostNetwork", "WorkloadAwarePreemption",
    "WorkloadWithJob",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: bool) -> Result<GateNotes, Locked> {
        check_gates(&BTreeMap::from([(name.to_owned(), value)]))
    }

    #[test]
    fn a_locked_gate_can_only_be_set_to_what_it_is() {
        assert_eq!(set("NFTablesProxyMode", true), Ok(GateNotes::default()));
        assert_eq!(
            set("NFTablesProxyMode", false).unwrap_err().to_string(),
            "cannot set feature gate NFTablesProxyMode to false, feature is locked to true"
        );
    }

    #[test]
    fn an_unknown_gate_is_told_from_one_that_does_nothing() {
        assert_eq!(set("Nope", true).unwrap().unknown, ["Nope"]);
        assert_eq!(
            set("ContextualLogging", true).unwrap().without_effect,
            ["ContextualLogging"]
        );
        assert_eq!(set("AllowServiceExternalIPs", false), Ok(GateNotes::default()));
    }
}
